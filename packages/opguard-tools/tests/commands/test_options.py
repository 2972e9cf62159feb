from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from opguard.tools.cli import build_parser, split_workload_arguments
from opguard.tools.commands.options import (
    CaptureOptions,
    CheckoutOptions,
    UsageError,
    parse_options,
)
from opguard.tools.commands.workflow import SideOptions, WorkloadOptions


def parse(*arguments: str) -> argparse.Namespace:
    own, workload = split_workload_arguments(["diff", *arguments])
    parsed = build_parser().parse_args(own)
    parsed.workload_arguments = workload or []
    return parsed


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "train.py").write_text("")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def test_defaults_are_this_interpreter_one_rank_and_a_new_directory_here(sides: Path) -> None:
    options = parse_options(parse("--baseline", "../a", "--candidate", "../b"))

    assert isinstance(options, CheckoutOptions)
    assert options.checkouts == {"baseline": sides / "a", "candidate": sides / "b"}
    assert options.workload == WorkloadOptions(
        script="train.py",
        sides={side: SideOptions([sys.executable], {}) for side in ("baseline", "candidate")},
        arguments=[],
        ranks=1,
        timeout_seconds=1800.0,
    )
    assert options.output.parent == sides / "work"
    assert options.output.name.startswith("opguard-diff-")
    assert not options.output.exists()
    assert options.local_root is None


def test_number_of_ranks_selects_torchrun_in_this_interpreter(sides: Path) -> None:
    options = parse_options(
        parse("--baseline", "../a", "--candidate", "../b", "--nproc", "2", "--", "--seed", "0")
    )

    assert isinstance(options, CheckoutOptions)
    assert options.workload.sides["candidate"].launcher == [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
    ]
    assert options.workload.ranks == 2
    assert options.workload.arguments == ["--seed", "0"]
    assert options.workload.workload("baseline", sides / "a").ranks == [0, 1]


def test_each_side_has_an_interpreter_and_variables_of_its_own(sides: Path) -> None:
    for name in ("old", "new"):
        python = sides / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
    options = parse_options(
        parse(
            *("--baseline", "../a", "--candidate", "../a", "--env", "A=1", "--env", "B=1"),
            *("--baseline-python", "../old", "--candidate-python", "../new/bin/python"),
            *("--candidate-env", "B=2", "--depth", "aten"),
        )
    )

    assert isinstance(options, CheckoutOptions)
    assert options.workload.sides == {
        "baseline": SideOptions([str(sides / "old/bin/python")], {"A": "1", "B": "1"}),
        "candidate": SideOptions([str(sides / "new/bin/python")], {"A": "1", "B": "2"}),
    }
    assert options.workload.depth == "aten"


def test_one_side_may_have_a_launcher_of_its_own(sides: Path) -> None:
    options = parse_options(
        parse(
            *("--baseline", "../a", "--candidate", "../b"),
            *("--launcher", "both", "--candidate-launcher", "srun python"),
        )
    )

    assert isinstance(options, CheckoutOptions)
    found = {side: how.launcher for side, how in options.workload.sides.items()}
    assert found == {"baseline": ["both"], "candidate": ["srun", "python"]}


def test_launcher_environment_and_directories_are_taken_as_given(sides: Path) -> None:
    options = parse_options(
        parse(
            *("--baseline", "../a", "--candidate", "../a"),
            *("--launcher", "srun --ntasks=2 'my python'", "--nproc", "2"),
            *("--env", "A=1", "--env", "B=x=y", "--env", "C="),
            *("--output", "out", "--local-root", "local", "--timeout", "2.5"),
        )
    )

    assert isinstance(options, CheckoutOptions)
    assert options.workload.sides["baseline"] == SideOptions(
        ["srun", "--ntasks=2", "my python"], {"A": "1", "B": "x=y", "C": ""}
    )
    assert options.workload.timeout_seconds == 2.5
    assert (options.output, options.local_root) == (sides / "work/out", sides / "work/local")
    assert options.checkouts == {"baseline": sides / "a", "candidate": sides / "a"}


def test_default_output_is_outside_a_checkout_that_is_the_current_folder(
    sides: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = sides / "a" / "inner"
    inner.mkdir()
    (inner / "train.py").write_text("")
    monkeypatch.chdir(inner)

    options = parse_options(parse("--baseline", "..", "--candidate", "."))

    assert options.output.parent == sides


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--baseline", "../a"], "--candidate"),
        (["--candidate", "../a"], "--baseline"),
        (["--baseline", "../a", "--candidate", "../b", "--baseline-python", "x"], "--baseline-p"),
        (["--baseline", "../a", "--candidate", "../b", "--candidate-env", "x"], "--candidate-env"),
        (["--baseline", "../missing", "--candidate", "../b"], "--baseline"),
        (["--baseline", "../a", "--candidate", "../b", "--script", "x.py"], "--script"),
        (["--baseline", "../a", "--candidate", "../b", "--partial"], "--partial"),
        (["--baseline", "../a", "--candidate", "../b", "--env", "A"], "--env"),
        (["--baseline", "../a", "--candidate", "../b", "--env", "=1"], "--env"),
        (["--baseline", "../a", "--candidate", "../b", "--launcher", "'"], "--launcher"),
        (["--baseline", "../a", "--candidate", "../b", "--launcher", ""], "--launcher"),
        (["--baseline", "../a", "--candidate", "../b", "--output", "."], "--output"),
        (["--baseline", "../a", "--candidate", "../b", "--output", "../b/out"], "output"),
        (
            ["--baseline", "../a", "--candidate", "../b", "--local-root", "../b/local"],
            "local_root",
        ),
        (["--captures", "../a", "../b"], "--captures"),
        (["--captures", "../a", "../b", "--baseline", "../a"], "--baseline"),
        (["--captures", "../a", "../b", "--nproc", "2"], "--nproc"),
        (["--captures", "../a", "../b", "--", "--seed"], "--"),
        (["--captures", "../a", "../b", "--repeat", "1"], "--repeat"),
        (["--baseline", "../a", "--candidate", "../b", "--repeats", "../a"], "--repeats"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_option_that_cannot_be_obeyed_is_named(
    sides: Path, arguments: list[str], word: str
) -> None:
    with pytest.raises(UsageError, match=word):
        parse_options(parse(*arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nproc", "0"],
        ["--nproc", "two"],
        ["--timeout", "0"],
        ["--repeat", "-1"],
        ["--repeat", "one"],
        ["--captures", "a", "b", "--repeats"],
        ["--timeout", "nan"],
        ["--timeout", "inf"],
        ["--captures", "only-one"],
    ],
    ids=" ".join,
)
def test_value_out_of_range_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(*arguments)

    assert caught.value.code == 2


@pytest.mark.requirement("B13")
def test_captures_may_be_trace_outputs_or_sides_of_a_diff_output(sides: Path) -> None:
    for folder in ("one", "two/trace"):
        (sides / folder).mkdir(parents=True)
        (sides / folder / "plan.json").write_text("{}")
        (sides / folder / "worker-request.json").write_text("{}")

    options = parse_options(parse("--captures", "../one", "../two", "--partial", "--output", "out"))

    assert options == CaptureOptions(
        baseline=sides / "one",
        candidate=sides / "two" / "trace",
        partial=True,
        output=sides / "work" / "out",
    )


def test_repeats_are_a_number_of_runs_or_existing_captures(sides: Path) -> None:
    for folder in ("one", "two", "three"):
        (sides / folder).mkdir()
        (sides / folder / "plan.json").write_text("{}")
        (sides / folder / "worker-request.json").write_text("{}")

    run = parse_options(parse("--baseline", "../a", "--candidate", "../b", "--repeat", "3"))
    read = parse_options(parse("--captures", "../one", "../two", "--repeats", "../three", "../one"))

    assert isinstance(run, CheckoutOptions)
    assert run.repeats == 3
    assert isinstance(read, CaptureOptions)
    assert read.repeats == (sides / "three", sides / "one")


def test_repeat_that_is_no_capture_is_named_with_its_option(sides: Path) -> None:
    for folder in ("one", "two"):
        (sides / folder).mkdir()
        (sides / folder / "plan.json").write_text("{}")
        (sides / folder / "worker-request.json").write_text("{}")

    with pytest.raises(UsageError, match="--repeats: "):
        parse_options(parse("--captures", "../one", "../two", "--repeats", "."))


def test_limits_of_the_recording_become_variables_of_the_workload(sides: Path) -> None:
    limits = ("--steps", "0-3,10", "--levels", "2", "--env", "A=1")
    options = parse_options(parse("--baseline", "../a", "--candidate", "../b", *limits))

    assert isinstance(options, CheckoutOptions)
    expected = {"A": "1", "OPGUARD_SELECT_STEPS": "0-3,10", "OPGUARD_SELECT_LEVELS": "2"}
    assert all(side.environment == expected for side in options.workload.sides.values())


@pytest.mark.parametrize(
    "limits",
    [
        ("--steps", "3-1"),
        ("--phases", "sideways"),
        ("--callsites", "a:b:c:d"),
        ("--levels", "0"),
        ("--steps", "1", "--env", "OPGUARD_SELECT_STEPS=2"),
    ],
)
def test_malformed_limit_is_a_usage_error(sides: Path, limits: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=limits[0]):
        parse_options(parse("--baseline", "../a", "--candidate", "../b", *limits))


def test_captures_cannot_be_limited_afterwards(sides: Path) -> None:
    with pytest.raises(UsageError, match="--steps"):
        parse_options(parse("--captures", "../a", "../b", "--steps", "1"))
