"""One test per origin rule, each on a hand-made capture."""

from __future__ import annotations

import pytest
from capture_builders import BACKWARD, OPTIMIZER, Recording, align_by_callee, view

from opguard.tools.compare import Comparison, compare_captures


def compare(baseline: Recording, candidate: Recording, **changed: int) -> Comparison:
    left, right = view(baseline), view(candidate)
    return compare_captures(left, right, align_by_callee(left, right, changed), [0])


def summary(comparison: Comparison) -> list[tuple[str, str | None, str | None, list[str]]]:
    """Kind, both callees and slots of every origin."""
    sites = (comparison.baseline.sites, comparison.candidate.sites)
    return [
        (
            origin.kind.value,
            *(
                known[call.site].callee if call is not None else None
                for known, call in zip(sites, (origin.baseline, origin.candidate), strict=True)
            ),
            [slot.slot for slot in origin.slots],
        )
        for origin in comparison.ranks[0].origins
    ]  # type: ignore[return-value]


def why(comparison: Comparison) -> str:
    assert comparison.first is not None
    return comparison.first[1].why


def test_equal_inputs_with_different_outputs_are_an_origin() -> None:
    sides = Recording(), Recording()
    for run, out in zip(sides, ("y", "z"), strict=True):
        run.call("linear", inputs={"arg[0]": "x"}, outputs={"out": out})

    found = compare(*sides)

    assert summary(found) == [("outputs_differ", "linear", "linear", ["out"])]
    assert why(found) == "inputs equal, outputs differ"


def test_call_that_takes_a_differing_value_inherits_the_difference() -> None:
    sides = Recording(), Recording()
    for run, out in zip(sides, ("y", "z"), strict=True):
        run.call("linear", inputs={"arg[0]": "x"}, outputs={"out": out})
        run.call("relu", inputs={"arg[0]": out}, outputs={"out": out + "r"})

    assert summary(compare(*sides)) == [("outputs_differ", "linear", "linear", ["out"])]


def test_only_the_innermost_differing_call_is_an_origin() -> None:
    sides = Recording(), Recording()
    for run, out in zip(sides, ("y", "z"), strict=True):
        with (
            run.nest("model", inputs={"arg[0]": "x"}, outputs={"out": out}),
            run.nest("block", inputs={"arg[0]": "x"}, outputs={"out": out}),
        ):
            run.call("linear", inputs={"arg[0]": "x"}, outputs={"out": out})

    assert summary(compare(*sides)) == [("outputs_differ", "linear", "linear", ["out"])]


def test_every_later_call_with_equal_inputs_and_different_outputs_is_an_origin_too() -> None:
    sides = Recording(), Recording()
    for run, out in zip(sides, ("y", "z"), strict=True):
        run.call("shuffle", outputs={"out": out})
        run.call("dropout", inputs={"arg[0]": "x"}, outputs={"out": out + "d"})

    assert summary(compare(*sides)) == [
        ("outputs_differ", "shuffle", "shuffle", ["out"]),
        ("outputs_differ", "dropout", "dropout", ["out"]),
    ]


def test_outputs_of_another_dtype_or_shape_are_incompatible() -> None:
    sides = Recording(), Recording()
    for run, out in zip(sides, ("y:float32", "y:bfloat16"), strict=True):
        run.call("arange", inputs={"arg[0]": "x"}, outputs={"out": out})

    found = compare(*sides)

    assert summary(found) == [("incompatible", "arange", "arange", ["out"])]
    assert "could not be set side by side" in why(found)


def test_an_exception_on_one_side_only_is_a_differing_output() -> None:
    sides = Recording(), Recording()
    for run, error in zip(sides, (None, "ValueError"), strict=True):
        run.call("linear", inputs={"arg[0]": "x"}, error=error)

    assert summary(compare(*sides)) == [("outputs_differ", "linear", "linear", ["raised"])]


def test_argument_that_decides_an_output_explains_it_by_value() -> None:
    sides = Recording(), Recording()
    for run, reduction, out in zip(sides, ("'sum'", "'mean'"), ("y", "z"), strict=True):
        run.call(
            "cross_entropy",
            inputs={"arg[0]": "x"},
            values={"value.reduction": reduction},
            outputs={"out": out},
        )

    found = compare(*sides)

    assert summary(found) == [
        ("unexplained_input", "cross_entropy", "cross_entropy", ["value.reduction"])
    ]
    assert why(found).startswith("value.reduction is 'sum' in the baseline and 'mean' in the")


def test_argument_without_effect_on_any_output_is_no_difference() -> None:
    sides = Recording(), Recording()
    for run, flag in zip(sides, ("True", "False"), strict=True):
        run.call("linear", inputs={"arg[0]": "x"}, values={"value.log": flag}, outputs={"out": "y"})

    found = compare(*sides)

    assert (found.first, found.ranks[0].relations()["equal"]) == (None, 1)


def test_first_differing_input_names_the_innermost_consumer_and_the_last_equal_producer() -> None:
    sides = Recording(), Recording()
    for run, weight, out in zip(sides, ("w", "v"), ("y", "z"), strict=True):
        run.call("init", outputs={"param.weight": "w0"})
        with run.nest("model", inputs={"param.weight": weight}, outputs={"out": out}):
            run.call("linear", inputs={"param.weight": weight}, outputs={"out": out})

    found = compare(*sides)

    assert summary(found) == [("unexplained_input", "linear", "linear", ["param.weight"])]
    assert "last equal producer: train.py:1 `init(...)`" in why(found)


def test_inner_consumers_count_only_until_something_is_produced_differently() -> None:
    sides = Recording(), Recording()
    for run, mark in zip(sides, "yz", strict=True):
        with run.nest("model", inputs={"param.w": "w" + mark}, outputs={"out": mark}):
            run.call("noise", outputs={"out": "n" + mark})
            run.call("linear", inputs={"arg[0]": "n" + mark}, outputs={"out": mark})

    assert summary(compare(*sides)) == [
        ("unexplained_input", "model", "model", ["param.w"]),
        ("outputs_differ", "noise", "noise", ["out"]),
    ]


def test_unpaired_call_that_produced_the_differing_input_is_the_origin() -> None:
    baseline, candidate = Recording(), Recording()
    baseline.call("permute", inputs={"self": "x"}, outputs={"out": "xp"})
    baseline.call("reshape", inputs={"self": "xp"}, outputs={"out": "y"})
    candidate.call("reshape", inputs={"self": "x"}, outputs={"out": "z"})

    found = compare(baseline, candidate)

    assert summary(found) == [("unpaired", "permute", None, ["self"])]
    assert why(found).startswith("this call exists on one side only and produced what train.py:2")


def test_unpaired_call_whose_effect_is_the_differing_state_is_the_origin() -> None:
    baseline, candidate = Recording(), Recording()
    for run, old, new in ((baseline, "=None", "g"), (candidate, "g0", "gg")):
        run.call("closure", outputs={"out": "l"})
        if run is baseline:
            run.call("zero_grad", before={"grad.param.w": "g0"}, after={"grad.param.w": "=None"})
        run.call("backward", inputs={"grad.param.w": old}, after={"grad.param.w": new})

    assert summary(compare(baseline, candidate)) == [
        ("unpaired", "zero_grad", None, ["grad.param.w"])
    ]


def test_outermost_of_nested_unpaired_producers_is_named_for_a_differing_input() -> None:
    baseline, candidate = Recording(), Recording()
    with baseline.nest("prepare", outputs={"out": "xp"}):
        baseline.call("permute", inputs={"self": "x"}, outputs={"out": "xp"})
    baseline.call("reshape", inputs={"self": "xp"}, outputs={"out": "y"})
    candidate.call("reshape", inputs={"self": "x"}, outputs={"out": "z"})

    assert summary(compare(baseline, candidate)) == [("unpaired", "prepare", None, ["self"])]


def test_unpaired_call_that_produced_nothing_relevant_is_only_mentioned() -> None:
    baseline, candidate = Recording(), Recording()
    baseline.call("log", inputs={"arg[0]": "x"}, outputs={"out": "norm"})
    for run, weight, out in ((baseline, "w", "y"), (candidate, "v", "z")):
        run.call("linear", inputs={"param.weight": weight}, outputs={"out": out})

    found = compare(baseline, candidate)

    assert summary(found) == [("unexplained_input", "linear", "linear", ["param.weight"])]
    assert "nearest call on one side only: train.py:1 `log(...)` (baseline)" in why(found)


def test_unpaired_call_of_another_step_is_not_blamed() -> None:
    baseline, candidate = Recording(), Recording()
    baseline.call("load", outputs={"out": "w"})
    for run, weight, out in ((baseline, "w", "y"), (candidate, "v", "z")):
        run.step = 1
        run.call("linear", inputs={"param.weight": weight}, outputs={"out": out})

    assert summary(compare(baseline, candidate)) == [
        ("unexplained_input", "linear", "linear", ["param.weight"])
    ]


def test_unpaired_calls_inside_an_equal_input_call_name_both_sides_innermost_first() -> None:
    baseline, candidate = Recording(), Recording()
    for run, first, last, out in (
        (baseline, "bitwise_or", "where", "m"),
        (candidate, "zeros", "add", "n"),
    ):
        with run.nest("mask", inputs={"arg[0]": "keep"}, outputs={"out": out}):
            run.call(first, inputs={"arg[0]": "keep"}, outputs={"out": first})
            run.call(last, inputs={"arg[0]": first}, outputs={"out": out})

    assert summary(compare(baseline, candidate)) == [("unpaired", "where", "add", ["out"])]


def test_innermost_of_nested_unpaired_producers_is_named_inside_a_differing_call() -> None:
    baseline, candidate = Recording(), Recording()
    for run, result in ((baseline, "m"), (candidate, "n")):
        with run.nest("mask", inputs={"arg[0]": "keep"}, outputs={"out": result}):
            if run is baseline:
                with run.nest("build", inputs={"arg[0]": "keep"}, outputs={"out": result}):
                    run.call("where", inputs={"arg[0]": "keep"}, outputs={"out": result})

    assert summary(compare(baseline, candidate)) == [("unpaired", "where", None, ["out"])]


def test_unpaired_call_after_the_consumer_is_not_blamed() -> None:
    baseline, candidate = Recording(), Recording()
    for run, weight, out in ((baseline, "w", "y"), (candidate, "v", "z")):
        run.call("linear", inputs={"param.weight": weight}, outputs={"out": out})
    baseline.call("copy", outputs={"out": "w"})

    assert summary(compare(baseline, candidate)) == [
        ("unexplained_input", "linear", "linear", ["param.weight"])
    ]


def test_without_dataflow_the_first_unpaired_call_inside_is_named() -> None:
    baseline, candidate = Recording(), Recording()
    for run, out in ((baseline, "m"), (candidate, "n")):
        with run.nest("mask", inputs={"arg[0]": "keep"}, outputs={"out": out}):
            if run is baseline:
                run.call("one", outputs={"out": "a"})
                run.call("two", outputs={"out": "b"})

    assert summary(compare(baseline, candidate)) == [("unpaired", "one", None, ["out"])]


def test_calls_inside_a_call_compiled_on_one_side_do_not_suppress_it() -> None:
    baseline, candidate = Recording(), Recording()
    with baseline.nest("heading", inputs={"arg[0]": "x"}, outputs={"out": "y"}):
        baseline.call("clamp", inputs={"arg[0]": "x"}, outputs={"out": "c"})
    candidate.call("heading", inputs={"arg[0]": "x"}, outputs={"out": "z"}, flags=1)

    found = compare(baseline, candidate)

    assert summary(found) == [("outputs_differ", "heading", "heading", ["out"])]
    assert "only the candidate's callee is compiled" in why(found)


def test_unpaired_calls_alone_are_no_divergence() -> None:
    baseline, candidate = Recording(), Recording()
    for run in (baseline, candidate):
        run.call("linear", inputs={"arg[0]": "x"}, outputs={"out": "y"})
    candidate.call("log", inputs={"arg[0]": "y"}, outputs={"out": "norm"})

    found = compare(baseline, candidate)

    assert (found.first, [u.side.value for u in found.ranks[0].unpaired]) == (None, ["candidate"])


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


def test_parameter_gradient_that_differs_first_belongs_to_backward_and_names_the_consumer() -> None:
    sides = Recording(), Recording()
    for run, gradient in zip(sides, ("g", "h"), strict=True):
        run.call("embed", inputs={"param.weight": "w0"}, outputs={"out": "e"})
        run.call("linear", inputs={"param.weight": "w", "arg[0]": "e"}, outputs={"out": "l"})
        run.call("backward", inputs={"self": "l"}, after={"grad.param.head.weight": gradient})

    found = compare(*sides)

    assert summary(found) == [
        ("outputs_differ", "backward", "backward", ["grad.param.head.weight"])
    ]
    assert "used last in the forward by train.py:2 `linear(...)`" in why(found)


def test_consumer_of_a_parameter_in_another_step_is_not_named() -> None:
    sides = Recording(), Recording()
    for run, gradient in zip(sides, ("g", "h"), strict=True):
        run.call("linear", inputs={"param.weight": "w"}, outputs={"out": "l"})
        run.step = 1
        run.call("backward", inputs={"self": "l"}, after={"grad.param.weight": gradient})

    assert why(compare(*sides)) == "inputs equal, outputs differ"


def test_gradient_of_an_output_that_differs_first_belongs_to_the_consumer_of_the_output() -> None:
    sides = Recording(), Recording()
    for run, gradient in zip(sides, ("g", "h"), strict=True):
        produced = run.call("embed", outputs={"out": "e"})
        consumed = run.call("norm", inputs={"arg[0]": "e"}, outputs={"out": "n"})
        with run.nest("backward"):
            run.gradient(consumed, "grad.out", "gn")
            run.gradient(produced, "grad.out", gradient)

    found = compare(*sides)

    assert summary(found) == [("outputs_differ", "norm", "norm", ["grad.out"])]
    assert "passed back to train.py:1 `embed(...)` differs" in why(found)


def test_gradient_without_agreeing_consumer_is_unexplained() -> None:
    sides = Recording(), Recording()
    for run, gradient in zip(sides, ("g", "h"), strict=True):
        call = run.call("embed", outputs={"out": "e"})
        run.gradient(call, "grad.out", gradient)

    assert summary(compare(*sides)) == [("unexplained_input", "embed", "embed", ["grad.out"])]


def test_consumer_whose_own_gradient_differs_is_not_blamed() -> None:
    sides = Recording(), Recording()
    for run, mark in zip(sides, "gh", strict=True):
        produced = run.call("embed", outputs={"out": "e"})
        with run.nest("block", inputs={"arg[0]": "e"}, outputs={"out": "b"}):
            consumed = run.call("norm", inputs={"arg[0]": "e"}, outputs={"out": "n"})
        run.gradient(produced, "grad.out", mark + "e")
        run.gradient(consumed, "grad.out", mark + "n")

    assert summary(compare(*sides)) == [("unexplained_input", "embed", "embed", ["grad.out"])]


def test_enclosing_backward_is_no_origin_when_a_gradient_inside_it_differs() -> None:
    sides = Recording(), Recording()
    for run, gradient in zip(sides, ("g", "h"), strict=True):
        produced = run.call("embed", outputs={"out": "e"})
        consumed = run.call("norm", inputs={"arg[0]": "e"}, outputs={"out": "n"})
        with run.nest("backward", after={"grad.param.w": gradient}):
            run.gradient(consumed, "grad.out", "gn")
            run.gradient(produced, "grad.out", gradient)

    assert summary(compare(*sides)) == [("outputs_differ", "norm", "norm", ["grad.out"])]


def test_gradient_on_one_side_only_is_an_origin_when_values_differ_later() -> None:
    sides = Recording(), Recording()
    for run, weight, out in zip(sides, ("w", "v"), ("y", "z"), strict=True):
        call = run.call("checkpoint", outputs={"out": "c"})
        if run is sides[0]:
            run.gradient(call, "grad.out", "g")
        run.step = 1
        run.call("linear", inputs={"param.weight": weight}, outputs={"out": out})

    found = compare(*sides)

    assert summary(found) == [("unpaired", "checkpoint", "checkpoint", ["grad.out"])]
    assert why(found) == "only the baseline computed a gradient for this output"


def test_gradient_on_one_side_only_is_no_difference_when_no_value_differs() -> None:
    sides = Recording(), Recording()
    for run in sides:
        call = run.call("checkpoint", outputs={"out": "c"})
        if run is sides[1]:
            run.gradient(call, "grad.out", "g")

    found = compare(*sides)

    assert (found.first, found.ranks[0].relations()["equal"]) == (None, 1)


def test_zeros_against_no_gradient_are_no_difference_when_no_value_differs() -> None:
    sides = Recording(), Recording()
    for run, cleared in zip(sides, ("zeros", "=None"), strict=True):
        run.call("zero_grad", after={"grad.param.w": cleared})
        run.call("backward", inputs={"grad.param.w": cleared}, after={"grad.param.w": "g"})

    assert compare(*sides).first is None


def test_optimizer_setting_that_differs_is_found_at_the_step_that_uses_it() -> None:
    sides = Recording(), Recording()
    for run, rate, weight in zip(sides, ("0.1", "0.2"), ("w1", "v1"), strict=True):
        run.call(
            "step",
            inputs={"param.w": "w0", "grad.param.w": "g"},
            values={"value.group[0].lr": rate},
            outputs={"param.w": weight},
            phase=OPTIMIZER,
        )

    found = compare(*sides)

    assert summary(found) == [("unexplained_input", "step", "step", ["value.group[0].lr"])]
    assert found.ranks[0].origins[0].phase == OPTIMIZER


def test_same_calls_in_another_order_within_a_step_are_no_difference() -> None:
    baseline, candidate = Recording(), Recording()
    for run, order in ((baseline, ("a", "b")), (candidate, ("b", "a"))):
        for name in order:
            run.call("norm", inputs={"arg[0]": name}, outputs={"out": "n" + name})

    found = compare(baseline, candidate)

    assert found.first is None
    assert [verdict.relation.value for verdict in found.ranks[0].pairs] == ["equal", "equal"]
    assert "each side has the other's values in this step" in found.ranks[0].pairs[0].reason


def test_values_that_only_another_step_of_the_other_side_has_are_a_difference() -> None:
    baseline, candidate = Recording(), Recording()
    for run, order in ((baseline, ("a", "b")), (candidate, ("b", "a"))):
        for step, name in enumerate(order):
            run.step = step
            run.call("next", outputs={"out": name})

    assert summary(compare(baseline, candidate)) == [
        ("outputs_differ", "next", "next", ["out"]),
        ("outputs_differ", "next", "next", ["out"]),
    ]


def test_parameter_on_one_side_only_is_no_difference_when_every_shared_value_agrees() -> None:
    baseline, candidate = Recording(), Recording()
    for run, extra in ((baseline, {}), (candidate, {"param.unused": "u"})):
        run.call("model", inputs={"arg[0]": "x", **extra}, outputs={"out": "y"})

    assert compare(baseline, candidate).first is None


def test_parameter_on_one_side_only_counts_when_a_value_differs() -> None:
    baseline, candidate = Recording(), Recording()
    for run, extra, out in ((baseline, {}, "y"), (candidate, {"param.bias": "b"}, "z")):
        run.call("model", inputs={"arg[0]": "x", **extra}, outputs={"out": out})

    assert summary(compare(baseline, candidate)) == [
        ("unexplained_input", "model", "model", ["param.bias"])
    ]


def test_parameter_that_a_call_changed_on_one_side_only_is_a_difference() -> None:
    baseline, candidate = Recording(), Recording()
    for run, effect in ((baseline, {"param.w": "w1"}), (candidate, {})):
        run.call("clamp", inputs={"arg[0]": "x"}, after=effect)

    assert summary(compare(baseline, candidate)) == [
        ("outputs_differ", "clamp", "clamp", ["param.w"])
    ]


def test_change_that_the_other_side_makes_elsewhere_in_the_step_is_no_difference() -> None:
    baseline, candidate = Recording(), Recording()
    candidate.call("clear", after={"grad.param.w": "zeros"})
    for run, effect in ((baseline, {"grad.param.w": "zeros"}), (candidate, {})):
        run.call("zero_grad", after=effect)

    assert compare(baseline, candidate).first is None


def test_fingerprints_of_different_layouts_give_one_incompatible_origin() -> None:
    sides = Recording(regions=4), Recording(regions=8)
    for run in sides:
        run.call("linear", inputs={"arg[0]": "x"}, outputs={"out": "y"})
        run.call("relu", inputs={"arg[0]": "y"}, outputs={"out": "r"})

    found = compare(*sides)

    assert summary(found) == [("incompatible", "linear", "linear", ["arg[0]"])]
    assert "4 regions in the baseline and 8 in the candidate" in why(found)


def test_tensors_that_were_not_read_agree_in_metadata_only() -> None:
    sides = Recording(), Recording()
    for run in sides:
        run.call("empty", outputs={"out": "?uninitialised"})

    found = compare(*sides)

    assert found.first is None
    assert found.ranks[0].pairs[0].reason == (
        "1 of 1 tensors agree in metadata only: their values were not read"
    )


def test_tensor_that_was_read_on_one_side_only_is_incompatible() -> None:
    sides = Recording(), Recording()
    for run, out in zip(sides, ("y", "?uninitialised"), strict=True):
        run.call("copy", outputs={"out": out})

    assert summary(compare(*sides)) == [("incompatible", "copy", "copy", ["out"])]


def test_values_not_read_are_no_evidence_of_dataflow() -> None:
    baseline, candidate = Recording(), Recording()
    baseline.call("allocate", outputs={"out": "?uninitialised"})
    for run, weight, out in ((baseline, "?uninitialised", "y"), (candidate, "v", "z")):
        run.call("linear", inputs={"arg[0]": weight}, outputs={"out": out})

    assert summary(compare(baseline, candidate)) == [
        ("unexplained_input", "linear", "linear", ["arg[0]"])
    ]


def test_origins_are_in_execution_order() -> None:
    sides = Recording(), Recording()
    for run, out in zip(sides, ("y", "z"), strict=True):
        for step in range(3):
            run.step = step
            run.call("load", outputs={"out": f"{out}{step}"})

    found = compare(*sides)

    assert [origin.step for origin in found.ranks[0].origins] == [0, 1, 2]
    assert found.first is not None
    assert found.first[1].step == 0


@pytest.mark.parametrize("name", ["zero_grad", "load_state_dict"])
def test_old_gradient_is_no_input_of_a_callee_that_only_overwrites(name: str) -> None:
    sides = Recording(), Recording()
    for run, old in zip(sides, ("g", "h"), strict=True):
        run.call(name, before={"grad.param.w": old}, after={"grad.param.w": "zeros"})

    assert compare(*sides).first is None


def test_old_gradient_is_an_input_of_a_leaf_call_that_changes_it() -> None:
    sides = Recording(), Recording()
    for run, old, new in zip(sides, ("g", "h"), ("gc", "hc"), strict=True):
        run.call("clip_grad_norm_", before={"grad.param.w": old}, after={"grad.param.w": new})

    assert summary(compare(*sides)) == [
        ("unexplained_input", "clip_grad_norm_", "clip_grad_norm_", ["grad.param.w"])
    ]


def test_old_value_of_an_effect_is_no_input_of_an_enclosing_call() -> None:
    sides = Recording(), Recording()
    for run, scale, new in zip(sides, ("a", "b"), ("gc", "hc"), strict=True):
        with run.nest("train", before={"grad.param.w": "g" + scale}, after={"grad.param.w": new}):
            run.call("scale", outputs={"out": scale})

    assert summary(compare(*sides)) == [("outputs_differ", "scale", "scale", ["out"])]


def test_backward_phase_is_kept_on_the_origin() -> None:
    sides = Recording(), Recording()
    for run, out in zip(sides, ("y", "z"), strict=True):
        run.call("hook", outputs={"out": out}, phase=BACKWARD)

    assert compare(*sides).ranks[0].origins[0].phase == BACKWARD


def test_iterator_that_hands_over_values_known_to_differ_inherits_the_difference() -> None:
    sides = Recording(), Recording()
    for run, part in zip(sides, ("y", "z"), strict=True):
        run.call("split", inputs={"self": "x"}, outputs={"out[0]": part})
        run.call("__next__", outputs={"out": part})

    assert summary(compare(*sides)) == [("outputs_differ", "split", "split", ["out[0]"])]


def test_iterator_that_yields_values_never_set_side_by_side_is_an_origin() -> None:
    sides = Recording(), Recording()
    for run, item in zip(sides, ("a", "b"), strict=True):
        run.call("load", outputs={"out[0]": "a", "out[1]": "b"})
        run.call("__next__", outputs={"out": item})
        run.call("relu", inputs={"arg[0]": item}, outputs={"out": item + "r"})

    assert summary(compare(*sides)) == [("outputs_differ", "__next__", "__next__", ["out"])]
