"""``diff`` as a program, on checkouts whose launcher is the fake one."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

import pytest
from checkout_pairs import PROGRAM, Finished, Pair


@pytest.fixture(scope="module")
def equal(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    made = Pair(tmp_path_factory.mktemp("equal"))
    made.make()
    return Finished(made, *made.diff("--json", "--output", "out"))


def test_equal_checkouts_end_with_status_zero(equal: Finished) -> None:
    document = equal.document
    assert (equal.status, document["origins"], document["first"]) == (0, [], None)
    assert (document["schema"], document["verdict"]) == (
        {"name": "opguard-diff", "version": 1},
        "not_evaluated",
    )
    assert equal.pair.sources() == [PROGRAM, PROGRAM]


def test_json_is_the_only_thing_on_stdout(equal: Finished) -> None:
    assert equal.out.count("\n") == 1
    assert "fake workload" not in equal.out


@pytest.mark.requirement("A7")
def test_every_step_is_a_process_whose_request_and_result_are_kept(equal: Finished) -> None:
    steps = equal.pair.folder / "out" / "steps"
    assert sorted(path.name for path in steps.iterdir()) == [
        "baseline-discover",
        "baseline-prepare",
        "baseline-trace",
        "candidate-discover",
        "candidate-prepare",
        "candidate-trace",
        "compare",
    ]
    for step in steps.iterdir():
        assert json.loads((step / "result.json").read_text())["ok"] is True
        assert json.loads((step / "request.json").read_text())["protocol_version"] == 1


def test_progress_goes_to_stderr_and_says_that_sources_are_instrumented(equal: Finished) -> None:
    assert "instrumented in place" in equal.err
    assert "[7/7] compare: done" in equal.err


def test_temporary_staging_is_removed_after_success(equal: Finished) -> None:
    assert list(equal.pair.temporary().iterdir()) == []


def test_difference_ends_with_status_one_and_names_both_lines(different: Finished) -> None:
    document = different.document
    assert different.status == 1
    assert document["first"] == document["origins"][0]
    places = [document["first"][side] for side in ("baseline", "candidate")]
    assert [(place["file"], place["line"]) for place in places] == [("train.py", 1)] * 2


def test_text_for_people_names_the_line_and_the_report_files(pair: Pair) -> None:
    pair.make(candidate=b"diff")

    status, out, _ = pair.diff()

    (output,) = pair.folder.glob("opguard-diff-*")
    assert status == 1
    assert "train.py:1" in out
    assert str(output / "compare" / "report.html") in out


def test_one_checkout_can_be_compared_with_itself(pair: Pair) -> None:
    pair.make()
    command = pair.command(None, "--json", "--output", "out")
    command[command.index("candidate")] = "baseline"

    process = pair.start(command)
    out, _ = process.communicate(timeout=300)

    assert process.returncode == 0
    assert json.loads(out)["first"] is None


@pytest.mark.requirement("B13")
def test_captures_of_an_earlier_diff_can_be_compared_again(different: Finished) -> None:
    process = different.pair.start(
        [
            *(sys.executable, "-m", "opguard.tools", "diff", "--json"),
            *("--captures", "out/baseline", "out/candidate", "--output", "again"),
        ]
    )
    out, err = process.communicate(timeout=300)

    assert process.returncode == 1, err
    assert json.loads(out)["origins"] == different.document["origins"]
    assert (different.pair.folder / "again" / "compare" / "report.html").is_file()


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    made = Pair(tmp_path_factory.mktemp("repeated"))
    made.make(candidate=b"diff")
    return Finished(made, *made.diff("--json", "--output", "out", "--repeat", "1"))


def test_repeat_traces_the_baseline_again_and_counts_its_steps(repeated: Finished) -> None:
    found = repeated.document["repeatability"]
    request = repeated.pair.folder / "out" / "steps" / "baseline-repeat-1" / "request.json"

    assert repeated.status == 1
    assert (found["runs"], found["differing_runs"], found["callsites"]) == (1, 0, [])
    assert repeated.document["not_repeatable"] == []
    assert json.loads(request.read_text())["output"].endswith("out/baseline/repeat-1")
    assert "[7/8] baseline: repeat-1: done" in repeated.err
    assert "[8/8] compare: done" in repeated.err
    assert repeated.pair.sources() == [PROGRAM, PROGRAM]


def compare_captures_again(pair: Pair, output: str, *options: str) -> tuple[int, dict[str, Any]]:
    command = [*(sys.executable, "-m", "opguard.tools", "diff", "--json", "--output", output)]
    process = pair.start([*command, "--captures", "out/baseline", "out/candidate", *options])
    out, _ = process.communicate(timeout=300)
    return process.returncode, json.loads(out)


def test_existing_captures_take_repeats_too(repeated: Finished) -> None:
    status, document = compare_captures_again(
        repeated.pair, "again", "--repeats", "out/baseline/repeat-1", "out/baseline"
    )

    assert (status, document["repeatability"]["runs"]) == (1, 2)
    assert document["origins"] == repeated.document["origins"]


def test_repeat_of_another_workload_is_refused(repeated: Finished) -> None:
    other = repeated.pair.folder / "other"
    shutil.copytree(repeated.pair.folder / "out" / "baseline" / "repeat-1", other)
    path = other / "worker-request.json"
    request = json.loads(path.read_text())
    request["request"]["workload"]["args"] += ["--seed", "1"]
    path.write_text(json.dumps(request))

    status, document = compare_captures_again(repeated.pair, "refused", "--repeats", "other")

    assert (status, document["error"]["type"]) == (3, "repeat_unequal")
    assert "--seed" in document["error"]["message"]


def test_arguments_that_differ_are_named_and_are_no_origin(equal: Finished) -> None:
    folder = equal.pair.folder
    shutil.copytree(folder / "out" / "baseline" / "trace", folder / "seeded")
    path = folder / "seeded" / "worker-request.json"
    request = json.loads(path.read_text())
    request["request"]["workload"]["args"] += ["--seed", "1"]
    path.write_text(json.dumps(request))
    process = equal.pair.start(
        [
            *(sys.executable, "-m", "opguard.tools", "diff"),
            *("--captures", "out/baseline", "seeded", "--output", "circumstances"),
        ]
    )
    out, _ = process.communicate(timeout=300)

    assert process.returncode == 0
    assert out.splitlines()[:2] == [
        "The runs differ in their circumstances; no recorded value differs.",
        "  arguments      --seed is not set in the baseline and 1 in the candidate",
    ]
