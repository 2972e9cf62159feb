"""Judging the case programs that are kept beside the repository: pairs with a bug, and stress.

Run as a program (`nox -s cases`), it takes every case there is and prints a table: for a pair
whether the first origin names the faulty statement, for a pair's baseline and for a stress script
whether it agrees with itself, and comes to the same parameters and random numbers untraced.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opguard_e2e import (
    COMMAND_TIMEOUT_SECONDS,
    REPOSITORY,
    make_checkout,
    run_tool,
    workload_environment,
)

WATCHED = Path(__file__).parent / "watched"
"""Folder of the module that writes down what a training has come to."""

SLACK_LINES = 1
"""A statement may begin or end that many lines from the accepted line."""


def shared_folder() -> Path:
    """The folder of case programs; it need not exist."""
    named = os.environ.get("OPGUARD_SHARED")
    return Path(named) if named else REPOSITORY.parent / "shared"


def names_accepted_site(origin: dict[str, Any], accepted: list[dict[str, Any]]) -> bool:
    """Whether an origin's statement, on either side, holds one of the accepted lines."""
    return any(
        site["file"] == statement["file"]
        and statement["line"] - SLACK_LINES <= site["line"]
        and site["line"] <= (statement["end_line"] or statement["line"]) + SLACK_LINES
        for site in accepted
        if (statement := origin[site["side"]]) is not None
    )


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        kind: ``pair``, ``control`` or ``stress``.
        passed: Whether the case came out as it should.
        seconds: How long the command ran.
        detail: What was found.
    """

    kind: str
    name: str
    passed: bool
    seconds: float
    detail: str


def diff(case: dict[str, Any], left: Path, right: Path, output: Path) -> tuple[int, dict[str, Any]]:
    """Exit status and document of the command on two folders of a case."""
    folder = output.parent
    sides = [
        make_checkout(source, folder / side).path
        for side, source in (("baseline", left), ("candidate", right))
    ]
    launch = () if case["ranks"] == 1 else ("--nproc", str(case["ranks"]))
    states = [watching(folder / "states" / side) for side in ("baseline", "candidate")]
    completed = run_tool(
        *("diff", "--json", *launch, "--script", case.get("entry", "train.py")),
        *("--baseline", str(sides[0]), "--candidate", str(sides[1])),
        *(f"--baseline-env={name}={value}" for name, value in states[0].items()),
        *(f"--candidate-env={name}={value}" for name, value in states[1].items()),
        *("--output", str(output), "--", "--seed", "0"),
    )
    try:
        return completed.returncode, json.loads(completed.stdout)
    except ValueError:
        return completed.returncode, {"error": {"message": completed.stderr[-300:]}}


def place(origin: dict[str, Any] | None) -> str:
    """``model.py:12 / model.py:13`` of an origin, or ``none``."""
    if origin is None:
        return "none"
    sides = (origin["baseline"], origin["candidate"])
    return " / ".join("-" if s is None else f"{s['file']}:{s['line']}" for s in sides)


def judge_pair(folder: Path, scratch: Path) -> tuple[bool, str]:
    """Whether ``first`` names the faulty statement."""
    case = json.loads((folder / "case.json").read_text())
    status, document = diff(case, folder / "baseline", folder / "candidate", scratch / "out")
    if status not in (0, 1):
        return False, f"status {status}: {document['error']['message'][:200]}"
    first = document["first"]
    passed = first is not None and names_accepted_site(first, case["accept"])
    return passed, f"{place(first)}  ({len(document['origins'])} origins)"


def judge_control(folder: Path, scratch: Path) -> tuple[bool, str]:
    """Whether the baseline agrees with itself, and with itself untraced."""
    case = json.loads((folder / "case.json").read_text())
    passed, detail = agrees_with_itself(case, folder / "baseline", scratch)
    run_untraced(case, folder / "baseline", scratch)
    same, states = left_alone(scratch)
    return passed and same, f"{detail}; {states}"


def judge_stress(folder: Path, scratch: Path) -> tuple[bool, str]:
    """Whether a stress script agrees with itself, and does what it does untraced."""
    case = json.loads((folder / "case.json").read_text())
    passed, detail = agrees_with_itself(case, folder, scratch)
    # Not what the case says: another processor rounds differently.
    expected = run_untraced(case, folder, scratch)
    for side in ("baseline", "candidate"):
        log = scratch / "out" / side / "trace" / "workload.log"
        printed = log.read_text("utf-8", "replace") if log.is_file() else ""
        missing = [line for line in expected if line not in printed]
        if missing and case["aa_deterministic"]:
            return False, f"{side} did not print {missing[0]!r}"
        if (unwanted := case.get("expected_absent_stdout")) and unwanted in printed:
            return False, f"{side} printed {unwanted!r}"
    same, states = left_alone(scratch)
    return passed and (same or not case["aa_deterministic"]), f"{detail}; {states}"


def watching(folder: Path) -> dict[str, str]:
    """Environment of a program that writes what its training has come to into ``folder``."""
    folder.mkdir(parents=True)
    return {"PYTHONPATH": str(WATCHED), "WATCHED_STATES": str(folder)}


def run_untraced(case: dict[str, Any], program: Path, scratch: Path) -> list[str]:
    """Run a program without a tracer; gives what it printed of the lines that its case names."""
    launcher = [sys.executable]
    if case["ranks"] > 1:
        torchrun = ("-m", "torch.distributed.run", "--standalone")
        launcher += [*torchrun, f"--nproc-per-node={case['ranks']}"]
    completed = subprocess.run(
        [*launcher, case.get("entry", "train.py"), "--seed", "0"],
        cwd=make_checkout(program, scratch / "untraced").path,
        env=workload_environment(**watching(scratch / "states" / "untraced")),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=COMMAND_TIMEOUT_SECONDS,
        check=False,
        text=True,
    )
    named = tuple(line.partition("=")[0] for line in case["verified"].get("reference_stdout", ()))
    return [line for line in completed.stdout.splitlines() if named and line.startswith(named)]


def left_alone(scratch: Path) -> tuple[bool, str]:
    """Whether parameters and random generators came to the same with and without a tracer."""
    found = {
        folder.name: {path.name: json.loads(path.read_text()) for path in folder.iterdir()}
        for folder in (scratch / "states").iterdir()
    }
    untraced = found.pop("untraced")
    if not untraced:
        return True, "no optimizer to compare states by"
    for side, states in found.items():
        for rank, state in untraced.items():
            seen = states.get(rank, {})
            differing = [name for name, value in state.items() if seen.get(name) != value]
            if differing:
                return False, f"{side} {rank}: tracing changed {', '.join(differing)}"
    steps = {state["steps"] for state in untraced.values()}
    return True, f"same state after {max(steps)} steps"


def agrees_with_itself(case: dict[str, Any], program: Path, scratch: Path) -> tuple[bool, str]:
    """Whether two runs of one program have no origin and end alike."""
    status, document = diff(case, program, program, scratch / "out")
    if status not in (0, 1):
        return False, f"status {status}: {document['error']['message'][:200]}"
    ends = {entry["text"] for entry in document["endings"]["ranks"]}
    compared = document["observed"]["slots"]["compared"]
    detail = f"{place(document['first'])}, {compared} tensors" + "".join(f"; {e}" for e in ends)
    return (status, document["first"], document["origins"]) == (0, None, []), detail


KINDS: dict[str, tuple[str, Callable[[Path, Path], tuple[bool, str]]]] = {
    "pair": ("pairs", judge_pair),
    "control": ("pairs", judge_control),
    "stress": ("stress", judge_stress),
}
"""Per kind, the folder of its cases and the function that judges one."""


def run_case(kind: str, folder: Path) -> Row:
    """Judge one case in a scratch folder of its own."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="opguard-case-") as scratch:
        try:
            passed, detail = KINDS[kind][1](folder, Path(scratch))
        except (OSError, subprocess.SubprocessError, KeyError) as error:
            passed, detail = False, repr(error)
    return Row(kind, folder.name, passed, time.monotonic() - started, detail)


def cases(kinds: list[str], only: str) -> Iterator[tuple[str, Path]]:
    """Kind and folder of every case asked for."""
    for kind in kinds:
        for folder in sorted((shared_folder() / "cases" / KINDS[kind][0]).iterdir()):
            if only in folder.name and (folder / "case.json").is_file():
                yield kind, folder


def main() -> int:
    """Judge the cases and print the table; returns 0 if all of them passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--jobs", type=int, default=1, help="cases at the same time (1)")
    arguments = parser.parse_args()
    if unknown := set(arguments.kinds) - KINDS.keys():
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    if not shared_folder().is_dir():
        print(f"no case folder at {shared_folder()}; name one in OPGUARD_SHARED", file=sys.stderr)
        return 2
    wanted = list(cases(arguments.kinds or list(KINDS), arguments.only))
    failed = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for row in pool.map(lambda case: run_case(*case), wanted):
            failed += not row.passed
            mark = "ok  " if row.passed else "MISS"
            print(
                f"{mark} {row.kind:<7} {row.name:<40} {row.seconds:4.0f} s  {row.detail}",
                flush=True,
            )
    print(f"{len(wanted) - failed} of {len(wanted)} cases came out as they should")
    return 0 if wanted and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
