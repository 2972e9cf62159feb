"""Command lines and variables of two runs, without what differs by nature."""

from __future__ import annotations

from typing import Any

import pytest

from opguard.tools.compare.arguments import (
    HIDDEN,
    OwnPlaces,
    differing_options,
    differing_variables,
    launcher,
    program,
)


def request(side: str = "a", **workload: Any) -> dict[str, Any]:
    """A ``worker-request.json`` of one side."""
    return {
        "checkout": f"/repos/{side}",
        "local_root": f"/scratch/{side}",
        "request": {
            "output": f"/runs/{side}/trace",
            "workload": {"cwd": f"/repos/{side}", "script": "train.py", **workload},
        },
    }


def options(left: list[str], right: list[str]) -> list[tuple[str, str | None, str | None]]:
    return list(differing_options(request("a", args=left), request("b", args=right)))


def variables(left: dict[str, str], right: dict[str, str]) -> list[tuple[Any, ...]]:
    return list(
        differing_variables(request("a", env=left), request("b", env=right), frozenset({"OMP"}))
    )


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (["--seed", "0"], ["--seed", "1"], [("--seed", "0", "1")]),
        (["--seed=0"], ["--seed", "1"], [("--seed", "0", "1")]),
        (["--seed=0"], ["--seed", "0"], []),
        (["--lr", "-1e-3"], ["--lr", "-.5"], [("--lr", "-1e-3", "-.5")]),
        (["--amp"], [], [("--amp", "given", None)]),
        ([], ["--steps", "4"], [("--steps", None, "4")]),
        (["optim.lr=1"], ["optim.lr=2"], [("optim.lr", "1", "2")]),
        (["small"], ["large"], [("argument 1", "small", "large")]),
        (["--a", "1", "--b", "2"], ["--b", "2", "--a", "1"], []),
        (["--x", "1", "--x", "2"], ["--x", "2", "--x", "1"], [("--x", "1, 2", "2, 1")]),
    ],
)  # fmt: skip
def test_options_are_compared_by_name_however_they_are_written(
    left: list[str], right: list[str], expected: list[tuple[str, str | None, str | None]]
) -> None:
    assert options(left, right) == expected


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (["--data", "/repos/a/data"], ["--data", "/repos/b/data"]),
        (["--config=/runs/a/trace/x"], ["--config=/runs/b/trace/x"]),
        (["--cache", "/tmp/one/cache"], ["--cache", "/tmp/two/cache"]),
        (["--cache", "/scratch/a"], ["--cache", "/scratch/b"]),
        (["--output", "/data/one"], ["--output", "/data/two"]),
        (["--save-dir", "one"], ["--save-dir", "two"]),
        (["--log_path=x"], ["--log_path=y"]),
        (["--run-name", "one"], ["--run-name", "two"]),
    ],
)
def test_folders_and_names_of_a_run_are_no_difference(left: list[str], right: list[str]) -> None:
    assert options(left, right) == []


def test_what_a_run_reads_is_a_difference_and_so_is_an_interval_of_logging() -> None:
    left = ["--checkpoint", "one/model.pt", "--log-interval", "1"]
    right = ["--checkpoint", "two/model.pt", "--log-interval", "2"]

    assert options(left, right) == [
        ("--checkpoint", "one/model.pt", "two/model.pt"),
        ("--log-interval", "1", "2"),
    ]


def test_a_folder_whose_name_only_begins_like_the_checkout_is_kept() -> None:
    assert OwnPlaces(request("a")).hide("/repos/a-data/x") == "/repos/a-data/x"
    assert OwnPlaces(request("a")).hide("/repos/a:/repos/a/x") == "<checkout>:<checkout>/x"


def test_secrets_differ_without_being_shown() -> None:
    assert options(["--api-key", "k1"], ["--api-key", "k2"]) == [("--api-key", HIDDEN, HIDDEN)]
    assert options(["--max-tokens", "1"], ["--max-tokens", "2"]) == [("--max-tokens", "1", "2")]
    assert variables({"HF_TOKEN": "x"}, {}) == [("HF_TOKEN", HIDDEN, None)]


def test_variables_differ_unless_they_belong_to_the_machine_or_are_known_elsewhere() -> None:
    left = {"MODE": "fast", "HOSTNAME": "one", "MASTER_PORT": "1", "WANDB_RUN": "x", "OMP": "1",
            "PYTHONPATH": "/repos/a", "TMPDIR": "/x"}  # fmt: skip
    right = {"MODE": "slow", "HOSTNAME": "two", "MASTER_PORT": "2", "WANDB_RUN": "y", "OMP": "2",
             "PYTHONPATH": "/repos/b", "TMPDIR": "/y"}  # fmt: skip

    assert variables(left, right) == [("MODE", "fast", "slow")]


def test_interpreters_of_two_environments_are_one_launcher() -> None:
    left = request(launcher=["/envs/a/bin/python3.11", "-m", "torch.distributed.run"])
    right = request(launcher=["/envs/b/bin/python", "-m", "torch.distributed.run"])

    assert launcher(left) == launcher(right) == "python -m torch.distributed.run"


def test_script_is_named_relative_to_its_checkout() -> None:
    assert program(request("a", script="/repos/a/train.py")) == "train.py"
    assert program(request("b")) == "train.py"
