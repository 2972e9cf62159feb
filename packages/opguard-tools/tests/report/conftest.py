"""Hand-written comparisons for the tests of the reports."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "compare"))

from capture_builders import Recording, align_by_callee, view

from opguard.tools.compare import (
    Comparison,
    EndKind,
    RankEnding,
    compare_captures,
    compare_with_repeats,
)

HOSTILE = "<script>alert('x')</script>&\"\x1b[31m"
"""Text of a workload that a report must not execute or pass to a terminal."""


def record(sites: dict[str, int], out: str, *, log: bool = False) -> Recording:
    """Two steps of a small training; ``out`` is what the second call of step 1 gives."""
    run = Recording(sites=sites)
    for step in range(2):
        run.step = step
        run.call("load", outputs={"out": f"x{step}"})
        given = out if step else "y"
        run.call(HOSTILE, inputs={"arg[0]": f"x{step}"}, outputs={"out": given})
        run.call("loss", inputs={"arg[0]": given}, outputs={"out": "l" + given})
        if log:
            run.call("log", inputs={"arg[0]": given}, outputs={"out": "=1.5"})
    return run


@pytest.fixture
def differing() -> Comparison:
    """Rank 0 differs at the hostile callee in step 1; the candidate logs besides."""
    sites: tuple[dict[str, int], dict[str, int]] = ({}, {})
    left = view(record(sites[0], "a"), record(sites[0], "a"))
    right = view(record(sites[1], "b", log=True), record(sites[1], "a", log=True))
    return compare_captures(left, right, align_by_callee(left, right), [0, 1])


@pytest.fixture
def equal() -> Comparison:
    """One rank, nothing differs."""
    left, right = view(record({}, "a")), view(record({}, "a"))
    return compare_captures(left, right, align_by_callee(left, right), [0])


@pytest.fixture
def hostile() -> str:
    """Text of a workload that a report must not execute or pass to a terminal."""
    return HOSTILE


@pytest.fixture
def cut() -> Comparison:
    """The candidate's capture ends after step 0."""
    short = Recording()
    short.call("load", outputs={"out": "x0"})
    raised = {"type": "ValueError", "message": HOSTILE, "file": "train.py", "line": 2}
    ending = RankEnding(0, EndKind.EXCEPTION, 1, raised, steps=1)
    left, right = view(record({}, "a")), view(short, endings={0: ending})
    return compare_captures(left, right, align_by_callee(left, right), [0])


def shuffled(noisy: str, order: str, *, failures: int = 0) -> Recording:
    """A loop over hostile data and a scatter that may vary."""
    run = Recording(failures=[f"call {n}: {HOSTILE}" for n in range(failures)])
    for step, item in enumerate(order):
        run.step = step
        run.item(HOSTILE, f"x{item}")
        run.call("scatter", inputs={"arg[0]": "i"}, outputs={"out": f"{noisy}{step}"})
    return run


@pytest.fixture
def around() -> Comparison:
    """Another seed, the data in another order, a failed record, and a scatter that varies."""

    def launched(seed: str) -> dict[str, object]:
        return {"request": {"workload": {"script": "train.py", "args": ["--seed", seed]}}}

    receipt = {"counts": {"recorder_failures": 2}}
    left = view(shuffled("a", "012"), request=launched("0"))
    right = view(shuffled("b", "021", failures=1), request=launched(HOSTILE), receipts={0: receipt})
    again = view(shuffled("c", "012"), request=launched("0"))
    return compare_with_repeats(left, right, align_by_callee(left, right), [0], [again])


@pytest.fixture
def unsteady() -> Comparison:
    """Nothing differs but a scatter that varies between equal runs as well."""
    left, right, again = (view(shuffled(noisy, "012")) for noisy in "abc")
    return compare_with_repeats(left, right, align_by_callee(left, right), [0], [again])
