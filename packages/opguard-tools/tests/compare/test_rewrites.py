"""Rewritten code: guessed pairs that the values contradict."""

from __future__ import annotations

from capture_builders import Recording, align_by_callee, view

from opguard.tools.compare import Comparison, compare_captures

GUESSED = {"mul#1": 1, "mul#2": 1, "invert": 1, "softmax": 1}
"""Callsites in changed statements; they pair by their callee text alone."""


def compare(baseline: Recording, candidate: Recording) -> Comparison:
    left, right = view(baseline), view(candidate)
    return compare_captures(left, right, align_by_callee(left, right, GUESSED), [0])


def origins(comparison: Comparison) -> list[tuple[str, str | None, str | None]]:
    return [
        (
            origin.kind.value,
            origin.baseline and origin.baseline.callee,
            origin.candidate and origin.candidate.callee,
        )
        for origin in comparison.ranks[0].origins
    ]


def mask(run: Recording, given: str, result: str) -> None:
    """A helper that inverts one of two masks and gives ``result``."""
    with run.nest("mask", inputs={"arg[0]": "keep", "arg[1]": "future"}, outputs={"out": result}):
        run.call("invert", inputs={"arg[0]": given}, outputs={"out": "not " + given})


def test_rewritten_helper_with_an_equal_result_is_no_difference() -> None:
    sides = Recording(), Recording()
    for run, given in zip(sides, ("keep", "future"), strict=True):
        mask(run, given, "m")

    found = compare(*sides)

    assert found.first is None
    assert sorted(u.side.value for u in found.ranks[0].unpaired) == ["baseline", "candidate"]


def test_rewritten_helper_is_not_blamed_for_a_later_difference() -> None:
    sides = Recording(), Recording()
    for run, given, out in zip(sides, ("keep", "future"), ("y", "z"), strict=True):
        mask(run, given, "m")
        run.call("attention", inputs={"arg[0]": "m"}, outputs={"out": out})

    assert origins(compare(*sides)) == [("outputs_differ", "attention", "attention")]


def test_other_order_inside_a_helper_is_not_blamed_for_a_later_difference() -> None:
    sides = Recording(), Recording()
    for run, order, out in zip(sides, ("ab", "ba"), ("y", "z"), strict=True):
        with run.nest("stack", inputs={"arg[0]": "a", "arg[1]": "b"}, outputs={"out": "s"}):
            for name in order:
                run.call("norm", inputs={"arg[0]": name}, outputs={"out": "n" + name})
        run.call("attention", inputs={"arg[0]": "s"}, outputs={"out": out})

    assert origins(compare(*sides)) == [("outputs_differ", "attention", "attention")]


def test_a_value_that_differs_in_a_shared_statement_counts_even_if_nothing_came_of_it() -> None:
    sides = Recording(), Recording()
    for run, out in zip(sides, ("y", "z"), strict=True):
        with run.nest("layer", inputs={"arg[0]": "x"}, outputs={"out": "same"}):
            run.call("scratch", inputs={"arg[0]": "x"}, outputs={"out": out})

    assert origins(compare(*sides)) == [("outputs_differ", "scratch", "scratch")]


def test_rewritten_helper_with_another_result_is_still_the_origin() -> None:
    sides = Recording(), Recording()
    for run, given, result in zip(sides, ("keep", "future"), ("m", "n"), strict=True):
        mask(run, given, result)

    (first,) = origins(compare(*sides))

    assert first == ("unexplained_input", "invert", "invert")


def test_statement_rewritten_without_effect_is_no_difference() -> None:
    sides = Recording(), Recording()
    for run, factors in zip(sides, (("2", "4"), ("4", "2")), strict=True):
        with run.nest("scale", inputs={"arg[0]": "x"}, outputs={"out": "8x"}):
            for place, (given, factor, result) in enumerate(
                (("x", factors[0], factors[0] + "x"), (factors[0] + "x", factors[1], "8x")), 1
            ):
                run.call(
                    f"mul#{place}",
                    inputs={"arg[0]": given},
                    values={"value.arg[1]": factor},
                    outputs={"out": result},
                )

    assert compare(*sides).first is None


def test_changed_statement_with_equal_inputs_and_other_outputs_is_an_origin() -> None:
    sides = Recording(), Recording()
    for run, dim, out in zip(sides, ("0", "1"), ("y", "z"), strict=True):
        with run.nest("main"):
            run.call(
                "softmax",
                inputs={"arg[0]": "x"},
                values={"value.dim": dim},
                outputs={"out": out},
            )

    assert origins(compare(*sides)) == [("unexplained_input", "softmax", "softmax")]


def test_calls_inside_a_withdrawn_pair_are_withdrawn_too() -> None:
    sides = Recording(), Recording()
    for run, given in zip(sides, ("keep", "future"), strict=True):
        with (
            run.nest("mask", inputs={"a": "keep", "b": "future"}, outputs={"out": "m"}),
            run.nest("invert", inputs={"arg[0]": given}, outputs={"out": "not " + given}),
        ):
            run.call("xor", outputs={"out": "not " + given})

    found = compare(*sides)

    assert found.first is None
    assert [pair.pair.baseline.callee for pair in found.ranks[0].pairs] == ["mask"]


def test_state_kept_by_a_call_without_result_is_not_taken_for_immaterial() -> None:
    sides = Recording(), Recording()
    for run, factor, shadow in zip(sides, ("2", "4"), ("s2", "s4"), strict=True):
        with run.nest("update", inputs={"arg[0]": "w"}):
            run.call(
                "mul#1",
                inputs={"self": "s"},
                values={"value.arg[0]": factor},
                outputs={"self": shadow},
            )
        run.step = 1
        run.call("evaluate", inputs={"arg[0]": shadow}, outputs={"out": "e" + shadow})

    assert origins(compare(*sides)) == [("unexplained_input", "mul#1", "mul#1")]


def test_argument_that_a_changed_statement_writes_counts_although_nothing_reads_it() -> None:
    sides = Recording(), Recording()
    for run, average in zip(sides, ("a", "b"), strict=True):
        with run.nest("update", inputs={"arg[0]": "w"}, outputs={"out": "w"}):
            run.call(
                "mul#1",
                inputs={"self": "old", "arg[0]": "w"},
                outputs={"out": average, "self": average},
            )

    assert origins(compare(*sides)) == [("outputs_differ", "mul#1", "mul#1")]


def test_equal_result_further_out_says_nothing_of_a_changed_statement() -> None:
    sides = Recording(), Recording()
    for run, kept in zip(sides, ("a", "b"), strict=True):
        with (
            run.nest("main", inputs={"arg[0]": "w"}, outputs={"out": "loss"}),
            run.nest("remember", inputs={"arg[0]": "w"}),
        ):
            run.call("mul#1", inputs={"arg[0]": "w"}, outputs={"out": kept})

    assert origins(compare(*sides)) == [("outputs_differ", "mul#1", "mul#1")]
