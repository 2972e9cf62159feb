"""Origins in the backward pass."""

from __future__ import annotations

from capture_builders import Recording
from comparing import compare, summary, why


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


def test_consumer_on_one_side_only_is_the_origin_of_the_gradient_that_it_changes() -> None:
    sides = Recording(), Recording()
    for run, gradient in zip(sides, ("g", "h"), strict=True):
        produced = run.call("embed", outputs={"out": "e"})
        if run is sides[1]:
            run.call("penalty", inputs={"arg[0]": "e"}, outputs={"out": "p"})
        run.call("backward")
        run.gradient(produced, "grad.out", gradient)

    found = compare(*sides)

    assert summary(found) == [("unpaired", None, "penalty", ["grad.out"])]
    assert "takes the output of train.py:1 `embed(...)`, whose gradient differs" in why(found)


def test_gradient_on_one_side_only_belongs_to_the_call_on_one_side_that_takes_the_output() -> None:
    sides = Recording(), Recording()
    for run, out in zip(sides, ("y", "z"), strict=True):
        call = run.call("model", outputs={"out": "m"})
        if run is sides[0]:
            run.call("detach", inputs={"self": "m"}, outputs={"out": "m"})
        run.call("pow", inputs={"self": "m"}, outputs={"out": "p"})
        if run is sides[1]:
            run.gradient(call, "grad.out", "g")
        run.step = 1
        run.call("linear", inputs={"param.weight": out}, outputs={"out": out})

    found = compare(*sides)

    assert summary(found) == [("unpaired", "detach", None, ["grad.out"])]
    assert "only the candidate computed a gradient for the output of train.py:1" in why(found)


def test_optimizer_that_steps_before_the_backward_does_not_hide_who_takes_the_output() -> None:
    sides = Recording(), Recording()
    for run, out in zip(sides, ("y", "z"), strict=True):
        call = run.call("generator", outputs={"out": "m"})
        run.step = 1
        if run is sides[1]:
            run.call("detach", inputs={"self": "m"}, outputs={"out": "m"})
        run.call("critic", inputs={"arg[0]": "m"}, outputs={"out": "p"})
        if run is sides[0]:
            run.gradient(call, "grad.out", "g")
        run.call("detach", inputs={"self": "m"}, outputs={"out": "m"})
        run.call("linear", inputs={"param.weight": out}, outputs={"out": out})

    assert summary(compare(*sides)) == [("unpaired", None, "detach", ["grad.out"])]


def test_consumer_in_a_later_step_is_blamed_for_the_gradient_that_it_passed_back() -> None:
    sides = Recording(), Recording()
    for run, gradient in zip(sides, ("g", "h"), strict=True):
        produced = run.call("generator", outputs={"out": "m"})
        run.step = 1
        consumed = run.call("critic", inputs={"arg[0]": "m"}, outputs={"out": "n"})
        run.gradient(consumed, "grad.out", "gn")
        run.gradient(produced, "grad.out", gradient)
        run.call("sum", inputs={"self": "m"}, outputs={"out": "s"})

    assert summary(compare(*sides)) == [("outputs_differ", "critic", "critic", ["grad.out"])]
