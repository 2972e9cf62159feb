"""Origins at calls that drew from a random generator in another state."""

from __future__ import annotations

from capture_builders import Recording
from comparing import compare, summary, why


def test_moved_generator_explains_the_first_differing_output() -> None:
    sides = Recording(), Recording()
    for run, state, out in zip(sides, ("s1", "s2"), ("y", "z"), strict=True):
        run.call("shuffle", outputs={"out": "p"}, rng={"rng.torch": ("s0", state)})
        run.call(
            "dropout",
            inputs={"arg[0]": "x"},
            outputs={"out": out},
            rng={"rng.torch": (state, state + "+")},
        )

    found = compare(*sides)

    assert summary(found) == [("outputs_differ", "shuffle", "shuffle", ["rng.torch"])]
    assert "left it in another; train.py:2 `dropout(...)` drew from it" in why(found)


def test_generator_that_only_a_call_inside_moved_does_not_explain_the_call_around_it() -> None:
    sides = Recording(), Recording()
    for run, state, out in zip(sides, ("s0", "s1"), ("y", "z"), strict=True):
        moves = {"rng.torch": (state, state + "+")}
        with run.nest("model", inputs={"arg[0]": "x"}, outputs={"out": out}, rng=moves):
            run.call("shuffle", outputs={"out": "p"}, rng=moves)

    assert summary(compare(*sides)) == [("outputs_differ", "model", "model", ["out"])]


def test_generator_that_a_call_moved_beyond_those_inside_explains_its_output() -> None:
    sides = Recording(), Recording()
    for run, state, out in zip(sides, ("s0", "s1"), ("y", "z"), strict=True):
        outer = {"rng.torch": (state, state + "++")}
        with run.nest("model", inputs={"arg[0]": "x"}, outputs={"out": out}, rng=outer):
            run.call("shuffle", outputs={"out": "p"}, rng={"rng.torch": (state, state + "+")})

    assert summary(compare(*sides)) == [("unexplained_input", "model", "model", ["rng.torch"])]


def test_unpaired_call_that_moved_the_generator_is_the_origin() -> None:
    baseline, candidate = Recording(), Recording()
    candidate.call("warmup", rng={"rng.torch": ("s0", "s1")})
    for run, state, out in ((baseline, "s0", "y"), (candidate, "s1", "z")):
        run.call("dropout", outputs={"out": out}, rng={"rng.torch": (state, state + "+")})

    found = compare(baseline, candidate)

    assert summary(found) == [("unpaired", None, "warmup", ["rng.torch"])]


def test_of_several_unpaired_calls_that_moved_the_generator_the_nearest_is_named() -> None:
    baseline, candidate = Recording(), Recording()
    candidate.call("warmup", rng={"rng.torch": ("s0", "s1")})
    candidate.call("noise", rng={"rng.torch": ("s1", "s2")})
    for run, state, out in ((baseline, "s0", "y"), (candidate, "s2", "z")):
        run.call("dropout", outputs={"out": out}, rng={"rng.torch": (state, state + "+")})

    assert summary(compare(baseline, candidate)) == [("unpaired", None, "noise", ["rng.torch"])]


def test_generator_that_no_recorded_call_moved_apart_is_an_unexplained_input() -> None:
    sides = Recording(), Recording()
    for run, state, out in zip(sides, ("s0", "s1"), ("y", "z"), strict=True):
        run.call("dropout", outputs={"out": out}, rng={"rng.torch": (state, state + "+")})

    assert summary(compare(*sides)) == [("unexplained_input", "dropout", "dropout", ["rng.torch"])]


def test_generator_state_alone_is_no_difference() -> None:
    sides = Recording(), Recording()
    for run, state in zip(sides, ("s0", "s1"), strict=True):
        run.call("sample", outputs={"out": "y"}, rng={"rng.torch": (state, state + "+")})

    assert compare(*sides).first is None


def test_later_output_drawn_from_a_differing_generator_is_inherited() -> None:
    sides = Recording(), Recording()
    for run, state, out in zip(sides, ("s0", "s1"), ("y", "z"), strict=True):
        run.call("load", outputs={"out": out})
        run.call("dropout", outputs={"out": out + "d"}, rng={"rng.torch": (state, state + "+")})

    assert summary(compare(*sides)) == [("outputs_differ", "load", "load", ["out"])]
