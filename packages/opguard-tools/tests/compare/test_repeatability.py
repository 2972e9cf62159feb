"""Further runs of the baseline set apart what is not repeatable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from capture_builders import Recording, align_by_callee, view

from opguard.tools.compare import Comparison, compare_with_repeats
from opguard.tools.compare.capture import CaptureView
from opguard.tools.compare.errors import UnequalRepeatError


def run(noisy: str = "n", loss: str = "l", *, steps: int = 2) -> Recording:
    """A training with a scatter that may vary, and a loss that may differ."""
    recording = Recording()
    for step in range(steps):
        recording.step = step
        recording.call("scatter", inputs={"arg[0]": "i"}, outputs={"out": f"{noisy}{step}"})
        recording.call("loss", inputs={"arg[0]": f"x{step}"}, outputs={"out": f"{loss}{step}"})
    return recording


def compare(
    baseline: CaptureView | Recording,
    candidate: CaptureView | Recording,
    repeats: Sequence[CaptureView | Recording],
) -> Comparison:
    left, right, *further = (
        view(side) if isinstance(side, Recording) else side
        for side in (baseline, candidate, *repeats)
    )
    return compare_with_repeats(left, right, align_by_callee(left, right), [0], further)


def places(comparison: Comparison) -> tuple[list[str], list[str]]:
    """Callees of the origins, and of those that are set apart."""
    (rank,) = comparison.ranks
    calls = [o.baseline or o.candidate for o in rank.origins]
    apart = [e.origin.baseline or e.origin.candidate for e in rank.not_repeatable]
    return [call.callee for call in calls if call], [call.callee for call in apart if call]


def test_without_a_difference_between_equal_runs_every_origin_stays() -> None:
    found = compare(run(), run(loss="m"), [run(), run()])

    assert places(found) == (["loss", "loss"], [])
    assert found.repeatability is not None
    assert (found.repeatability.runs, found.repeatability.differing_runs) == (2, 0)
    assert found.repeatability.callsites == []


def test_origin_at_a_callsite_that_varies_between_equal_runs_is_set_apart() -> None:
    found = compare(run("a"), run("b", "m"), [run("c"), run("a")])

    assert places(found) == (["loss", "loss"], ["scatter", "scatter"])
    assert found.first is not None
    assert found.first[1].baseline is not None
    assert found.first[1].baseline.callee == "loss"
    assert found.ranks[0].not_repeatable[0].why == (
        "this callsite also stops agreeing between equal runs of the baseline (1 of 2)"
    )


def test_varying_callsites_are_listed_with_the_number_of_runs() -> None:
    found = compare(run("a"), run("a"), [run("c"), run("d"), run("a")])

    assert found.repeatability is not None
    (callsite,) = found.repeatability.callsites
    assert (callsite.call.callee, callsite.runs, callsite.ranks) == ("scatter", 2, (0,))
    assert (found.repeatability.runs, found.repeatability.differing_runs) == (3, 2)
    assert places(found) == ([], [])


def test_when_every_origin_is_set_apart_there_is_no_first() -> None:
    found = compare(run("a"), run("b"), [run("c")])

    assert (found.first, places(found)) == (None, ([], ["scatter", "scatter"]))


def test_callsite_that_only_inherits_between_equal_runs_can_still_be_an_origin() -> None:
    def chain(noisy: str, loss: str) -> Recording:
        recording = Recording()
        recording.call("scatter", inputs={"arg[0]": "i"}, outputs={"out": noisy})
        recording.call("loss", inputs={"arg[0]": noisy}, outputs={"out": loss})
        return recording

    found = compare(chain("a", "la"), chain("a", "wrong"), [chain("b", "lb")])

    assert places(found) == (["loss"], [])


def test_unexplained_input_that_varies_between_equal_runs_is_set_apart() -> None:
    def consume(value: str) -> Recording:
        recording = Recording()
        recording.call("loss", inputs={"arg[0]": value}, outputs={"out": f"l{value}"})
        return recording

    found = compare(consume("a"), consume("b"), [consume("c")])

    assert places(found) == ([], ["loss"])


def test_unexplained_input_behind_one_that_varies_is_found() -> None:
    def train(noise: str, rate: str) -> Recording:
        recording = Recording()
        recording.call("tensor", values={"value.arg[0]": noise}, outputs={"out": f"n{noise}"})
        recording.call("add", inputs={"arg[0]": f"n{noise}"}, outputs={"out": f"s{noise}"})
        recording.call(
            "scale", inputs={"self": "x"}, values={"value.arg[0]": rate}, outputs={"out": rate}
        )
        return recording

    found = compare(train("a", "2.0"), train("b", "2.5"), [train("c", "2.0")])

    assert places(found) == (["scale"], ["tensor"])


def test_stream_that_varies_between_equal_runs_sets_its_origin_apart() -> None:
    def draw(state: str) -> Recording:
        recording = Recording()
        recording.call("rand", outputs={"out": f"r{state}"}, rng={"rng.torch": (state, "z")})
        return recording

    found = compare(draw("a"), draw("b"), [draw("c")])

    assert places(found) == ([], ["rand"])
    assert [item.also_between_equal_runs for item in found.circumstances] == [True]
    assert found.repeatability is not None
    assert [item.subject for item in found.repeatability.circumstances] == ["rng.torch"]


def test_stream_that_varies_only_later_between_equal_runs_explains_nothing_earlier() -> None:
    def draws(first: str, second: str) -> Recording:
        recording = Recording()
        for name, state in (("rand", first), ("noise", second)):
            recording.call(name, outputs={"out": f"{name}{state}"}, rng={"rng.torch": (state, "z")})
        return recording

    found = compare(draws("a", "k"), draws("b", "k"), [draws("a", "x")])

    assert places(found) == (["rand"], [])
    assert [item.also_between_equal_runs for item in found.circumstances] == [False]


def test_call_of_the_candidate_only_is_looked_up_by_its_callsite() -> None:
    def branch(*, extra: bool, out: str) -> Recording:
        recording = Recording(sites={"model": 0, "extra": 1})
        with recording.nest("model", inputs={"arg[0]": "x"}, outputs={"out": out}):
            if extra:
                recording.call("extra", outputs={"out": out})
        return recording

    steady, branching = branch(extra=False, out="y"), branch(extra=True, out="z")

    assert places(compare(steady, branching, [branching])) == ([], ["extra"])
    assert places(compare(steady, branching, [steady])) == (["extra"], [])


def test_repeat_of_other_sources_is_refused() -> None:
    other = replace(view(run()), sources={"train.py": b"other"})

    with pytest.raises(UnequalRepeatError) as caught:
        compare(run(), run(), [run(), other])

    assert caught.value.details["repeat"] == 2


def test_repeat_that_was_started_otherwise_is_refused_with_the_option() -> None:
    def started(seed: str) -> CaptureView:
        workload = {"script": "train.py", "args": ["--seed", seed]}
        return view(run(), request={"request": {"workload": workload}})

    with pytest.raises(UnequalRepeatError, match="--seed is 0 in the baseline and 1 in the repeat"):
        compare(started("0"), started("0"), [started("1")])


def test_operator_that_varies_between_equal_runs_leaves_the_others_of_its_call_alone() -> None:
    def inside(first: str, second: str) -> Recording:
        recording = Recording()
        recording.library("pkg/layer.py", "def function(x):\n    one(x)\n    two(x)\n")
        places = [recording.place("pkg/layer.py", text) for text in ("one(x)", "two(x)")]
        with recording.nest("trainer"):
            for place, name, out in zip(places, ("one", "two"), (first, second), strict=True):
                what = {"inputs": {"arg[0]": "x"}, "outputs": {"out": out}}
                recording.operator("trainer", f"lib::{name}", place, **what)
        return recording

    found = compare(inside("a", "n1"), inside("b", "n2"), [inside("a", "n3")])

    assert places(found) == (["lib::one@1"], ["lib::two@2"])
