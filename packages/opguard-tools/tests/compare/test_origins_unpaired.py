"""Origins at calls that only one side has."""

from __future__ import annotations

import pytest
from capture_builders import OPTIMIZER, Recording
from comparing import compare, summary, why


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


def test_update_on_one_side_only_is_the_origin_of_what_the_next_step_takes() -> None:
    baseline, candidate = Recording(), Recording()
    for run, weight in ((baseline, "w1"), (candidate, "w0")):
        run.call("forward", inputs={"param.weight": "w0"}, outputs={"out": "y"})
        if run is baseline:
            run.call("update", after={"param.weight": "w1"}, phase=OPTIMIZER)
        run.step = 1
        run.call("linear", inputs={"param.weight": weight}, outputs={"out": f"y{weight}"})

    assert summary(compare(baseline, candidate)) == [("unpaired", "update", None, ["param.weight"])]


@pytest.mark.parametrize("slot", ["param.weight", "self"])
def test_unpaired_call_that_was_given_the_differing_value_did_not_produce_it(slot: str) -> None:
    baseline, candidate = Recording(), Recording()
    baseline.call("state_dict", inputs={slot: "w"}, outputs={slot: "w", "out": "w"})
    for run, weight, out in ((baseline, "w", "y"), (candidate, "v", "z")):
        run.call("linear", inputs={"param.weight": weight}, outputs={"out": out})

    assert summary(compare(baseline, candidate)) == [
        ("unexplained_input", "linear", "linear", ["param.weight"])
    ]


def test_unpaired_call_that_found_a_gradient_missing_did_not_clear_it() -> None:
    baseline, candidate = Recording(), Recording()
    none = {"grad.param.w": "=None"}
    baseline.call("zero_grad", inputs=none, outputs=none)
    for run, old, new in ((baseline, "=None", "g"), (candidate, "g0", "gg")):
        run.call("backward", inputs={"grad.param.w": old}, after={"grad.param.w": new})

    assert summary(compare(baseline, candidate)) == [
        ("unexplained_input", "backward", "backward", ["grad.param.w"])
    ]
