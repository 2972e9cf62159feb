"""One test per origin rule, each on a hand-made capture."""

from __future__ import annotations

import pytest
from capture_builders import BACKWARD, OPTIMIZER, Recording
from comparing import compare, summary, why


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
