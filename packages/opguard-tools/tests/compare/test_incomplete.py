"""Captures that end early: the common prefix is compared, and incomplete is never equal."""

from __future__ import annotations

import pytest
from capture_builders import Recording, align_by_callee, view

from opguard.tools.compare import Comparison, compare_captures

ENDED = "rank killed"


def compare(
    baseline: Recording, candidate: Recording, *, left: bool = False, right: bool = False
) -> Comparison:
    sides = (
        view(baseline, incomplete={0: ENDED} if left else None),
        view(candidate, incomplete={0: ENDED} if right else None),
    )
    return compare_captures(*sides, align_by_callee(*sides), [0])


def steps(count: int, *, last_cut: bool = False) -> Recording:
    run = Recording()
    for step in range(count):
        run.step = step
        run.call("forward", outputs={"out": f"f{step}"})
        with run.nest(
            "backward", outputs={"out": f"b{step}"}, ends=not (last_cut and step == count - 1)
        ):
            run.call("hook", outputs={"out": f"h{step}"})
    return run


def relations(comparison: Comparison) -> dict[str, int]:
    return {str(r): n for r, n in comparison.ranks[0].relations().items() if n}


@pytest.mark.requirement("B13")
@pytest.mark.parametrize("side", ["left", "right"])
def test_calls_past_the_end_of_the_other_side_are_incomplete(side: str) -> None:
    runs = (steps(2), steps(4)) if side == "left" else (steps(4), steps(2))

    found = compare(*runs, **{side: True})

    assert relations(found) == {"equal": 6, "incomplete": 6}
    assert (found.first, list(found.ranks[0].unpaired)) == (None, [])


def test_the_same_calls_of_a_complete_capture_are_unpaired() -> None:
    found = compare(steps(2), steps(4))

    assert relations(found) == {"equal": 6, "unpaired": 6}


@pytest.mark.requirement("B13")
def test_a_call_that_never_ended_is_incomplete_and_its_outputs_are_no_difference() -> None:
    found = compare(steps(2, last_cut=True), steps(3), left=True)

    assert relations(found) == {"equal": 5, "incomplete": 4}
    assert found.ranks[0].pairs[-2].reason == "the call did not end in the baseline"
    assert found.first is None


@pytest.mark.requirement("B13")
def test_an_exception_that_ends_the_program_cuts_the_calls_that_it_passes_through() -> None:
    """``main`` returned on one side: what it did after the other side's end says nothing."""

    def run(count: int, error: str | None) -> Recording:
        made = Recording()
        with made.nest("main", error=error):
            for step in range(count):
                made.step = step
                made.call("forward", outputs={"out": f"f{step}"})
        return made

    found = compare(run(5, None), run(2, "ValueError"), right=True)

    assert relations(found) == {"equal": 2, "different": 1, "incomplete": 3}
    assert found.first is not None
    assert (found.first[1].baseline.callee, found.first[1].why) == (
        "main",
        "inputs equal; the baseline returned and the candidate raised ValueError",
    )


def test_a_missing_call_before_the_end_is_still_unpaired() -> None:
    baseline, candidate = steps(2), Recording()
    for step in range(2):
        candidate.step = step
        candidate.call("forward", outputs={"out": f"f{step}"})
        if step == 0:
            candidate.call("log", outputs={"out": "l"})
        candidate.call("backward", outputs={"out": f"b{step}"})

    found = compare(baseline, candidate, left=True)

    assert [(u.side.value, u.call.callee) for u in found.ranks[0].unpaired] == [
        ("candidate", "log"),
        ("baseline", "hook"),
        ("baseline", "hook"),
    ]


def test_a_difference_in_the_common_prefix_is_found() -> None:
    baseline, candidate = Recording(), Recording()
    for run, out in ((baseline, "y"), (candidate, "z")):
        run.call("forward", outputs={"out": out})
    candidate.call("backward", outputs={"out": "b"})

    found = compare(baseline, candidate, left=True)

    assert found.first is not None
    assert found.first[1].kind.value == "outputs_differ"
    assert relations(found) == {"different": 1, "incomplete": 1}


@pytest.mark.parametrize("short", ["left", "right"])
def test_a_gradient_past_the_end_of_the_other_side_is_no_difference(short: str) -> None:
    sides = Recording(), Recording()
    for run, out in zip(sides, ("y", "z"), strict=True):
        call = run.call("forward", outputs={"out": out})
        if run is sides[short == "left"]:
            run.gradient(call, "grad.out", "g")

    cut = compare(*sides, left=short == "left", right=short == "right")
    whole = compare(*sides)

    assert [event.kind.name for event in cut.ranks[0].events] == ["OUTPUT"]
    assert [event.kind.name for event in whole.ranks[0].events] == ["OUTPUT", "GRADIENT_MISSING"]


def test_reasons_are_kept_per_side() -> None:
    found = compare(steps(1), steps(1), left=True, right=True)

    assert {str(side): reason for side, reason in found.ranks[0].incomplete.items()} == {
        "baseline": ENDED,
        "candidate": ENDED,
    }
