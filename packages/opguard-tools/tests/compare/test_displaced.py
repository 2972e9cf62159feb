"""Calls made at another place in the order that leave another value behind."""

from __future__ import annotations

from capture_builders import OPTIMIZER, Recording
from comparing import compare


def average(*, after: bool) -> Recording:
    """Three steps with a moving average of the weights, taken after or before the step."""
    run, taken = Recording(), 0
    for step in range(3):
        run.step = step
        if not after:
            take(run, taken, step)
            taken = min(taken + 1, step)
        run.call("forward", outputs={"out": f"f{step}"})
        run.call("step", after={"param.w": f"w{step + 1}"})
        run.step = step + 1
        if after:
            take(run, step, step + 1)
    return run


def take(run: Recording, old: int, weight: int) -> None:
    with run.nest("update"):
        inputs = {"self": f"average{old}", "arg[0]": f"w{weight}"}
        new = f"average{old + 1}" if weight else "average0"
        run.call("lerp_", inputs=inputs, outputs={"self": new, "out": new} if weight else {})


def test_an_average_taken_too_early_is_found_although_nothing_reads_it() -> None:
    found = compare(average(after=True), average(after=False))

    assert found.first is not None
    origin = found.first[1]
    assert origin.baseline is not None
    assert (origin.baseline.callee, origin.baseline.step) == ("lerp_", 3)
    assert "same callsite at another place in the order" in origin.why


def schedule(*, before: bool) -> Recording:
    """Two steps whose rate a schedule halves, after or before the step."""
    run, rate = Recording(), 8
    for step in range(2):
        run.step = step
        run.call("backward", outputs={"out": f"g{step}"})
        if before:
            rate //= 2
            run.call("schedule", outputs={"out": f"={rate}"})
        run.call(
            "step",
            inputs={"arg[0]": f"w{step}" if not before or not step else "v"},
            values={"value.lr": str(rate)},
            outputs={"param.w": "v" if before else f"w{step + 1}"},
            phase=OPTIMIZER,
        )
        run.step = step + 1
        if not before:
            rate //= 2
            run.call("schedule", outputs={"out": f"={rate}"})
        run.call("state_dict", inputs={"param.w": "v" if before else f"w{step + 1}"})
    return run


def test_a_schedule_moved_before_the_step_shows_at_the_step() -> None:
    found = compare(schedule(before=False), schedule(before=True))

    assert found.first is not None
    origin = found.first[1]
    assert origin.baseline is not None
    assert origin.baseline.callee == "step"
    assert "value.lr is 8 in the baseline and 4 in the candidate" in origin.why


def test_an_evaluation_made_before_or_after_the_step_is_no_difference() -> None:
    """It counts in a tensor of its own, which nothing outside sees."""

    def run(*, after: bool) -> Recording:
        made = Recording()
        for place in (False, True):
            if place is after:
                with made.nest("evaluate"):
                    made.call("zeros", outputs={"out": "zero"})
                    hits = {"self": f"hits{place}", "out": f"hits{place}"}
                    inputs = {"self": "zero", "arg[0]": f"right{place}"}
                    made.call("add_", inputs=inputs, outputs=hits)
            if not place:
                made.call("forward", outputs={"out": "f"})
                made.call("step", inputs={"param.w": "w0"}, outputs={"param.w": "w1"})
        return made

    assert compare(run(after=True), run(after=False)).first is None


def test_equal_changes_under_other_step_numbers_are_no_difference() -> None:
    """A running total is added to before the optimizer's step, or after it."""

    def run(*, after: bool) -> Recording:
        made = Recording()
        for step in range(3):
            made.step = step
            for place in (False, True):
                if place is after:
                    total = {"self": f"total{step + 1}"}
                    made.call(
                        "add_", inputs={"self": f"total{step}", "arg[0]": f"l{step}"}, outputs=total
                    )
                if not place:
                    made.call("step", after={"param.w": f"w{step}"}, phase=OPTIMIZER)
                    made.step = step + 1
        return made

    assert compare(run(after=True), run(after=False)).first is None


def totals(*, displaced: bool, ahead: int = 0, mark: str = "") -> Recording:
    """Three steps with a total: before them, or displaced inside the last two.

    Args:
        displaced: Where the total is taken.
        ahead: How far the number of the step is ahead of the step where it is displaced.
        mark: Distinguishes its values.
    """
    made = Recording()
    for step in range(3):
        made.step = step
        for place in (False, True):
            if place is displaced and (step or not displaced):
                made.step = step + ahead
                inputs = {"self": f"old{step}{mark}", "arg[0]": f"x{step}"}
                made.call("total", inputs=inputs, outputs={"self": f"total{step}{mark}"})
                made.step = step
            if not place:
                for callee in ("forward", "loss", "backward"):
                    made.call(callee, outputs={"out": f"{callee}{step}"})
        made.call("step", after={"param.w": f"w{step}"}, phase=OPTIMIZER)
        made.call("log")
    return made


def test_displaced_calls_with_equal_values_pair_whatever_their_steps() -> None:
    found = compare(totals(displaced=False), totals(displaced=True, ahead=9))

    displaced = [v.pair for v in found.ranks[0].pairs if not v.pair.in_order]
    assert [(pair.baseline.step, pair.candidate.step) for pair in displaced] == [(1, 10), (2, 11)]
    assert found.first is None


def test_displaced_calls_with_other_values_pair_within_their_step() -> None:
    found = compare(totals(displaced=False), totals(displaced=True, mark="x"))

    displaced = [v.pair for v in found.ranks[0].pairs if not v.pair.in_order]
    assert [(pair.baseline.step, pair.candidate.step) for pair in displaced] == [(1, 1), (2, 2)]


def test_a_displaced_call_differs_no_earlier_than_both_sides_have_made_it() -> None:
    """It is made late in the candidate, and differs there because of what differed meanwhile."""

    def run(*, late: bool, value: str) -> Recording:
        made = Recording()
        for place in (False, True):
            if place is late:
                made.call("total", inputs={"self": "t", "arg[0]": value}, outputs={"self": value})
            if not place:
                made.call("forward", inputs={"arg[0]": "x"}, outputs={"out": f"f{value}"})
                made.call("loss", inputs={"arg[0]": f"f{value}"}, outputs={"out": f"l{value}"})
        return made

    found = compare(run(late=False, value="a"), run(late=True, value="b"))

    assert found.first is not None
    assert found.first[1].baseline is not None
    assert found.first[1].baseline.callee == "forward"
