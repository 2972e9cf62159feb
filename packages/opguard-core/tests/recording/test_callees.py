"""Callees and arguments whose classes make attributes up, or refuse them."""

import functools

import pytest
import torch
from torch import nn

from opguard.core._site import site
from opguard.core.recording.callees import bound_to, callee_name, is_compiled


class Proxy:
    """Anything that is not in its slots is asked of it, which it notes and refuses."""

    __slots__ = ("asked", "function")

    def __init__(self, function, asked):
        self.function = function
        self.asked = asked

    def __call__(self, *args):
        return self.function(*args)

    def __getattr__(self, name):
        self.asked.append(name)
        raise RuntimeError(f"no {name}")


class Refusing:
    """Its dictionary cannot be had."""

    __slots__ = ("held",)

    def __init__(self, held):
        self.held = held

    @property
    def __dict__(self):
        raise RuntimeError("no __dict__")


def test_class_of_a_callee_is_not_asked_for_attributes(recorder, writer) -> None:
    asked = []
    x = torch.arange(3.0)
    y = site(4, Proxy(torch.neg, asked))(x)
    assert torch.equal(y, -x)
    assert asked == []
    assert writer.calls[1]["callee"] == "Proxy"
    assert list(writer.slots(1, 0)) == ["arg[0]"]
    assert list(writer.slots(1, 1)) == ["out"]


def test_argument_that_refuses_its_attributes_is_recorded_with_those_in_its_slots(
    recorder, writer
) -> None:
    x = torch.arange(3.0)
    site(4, lambda item: item.held * 2)(Refusing(x))
    assert list(writer.slots(1, 0)) == ["arg[0].held"]
    assert list(writer.slots(1, 1)) == ["out"]


@pytest.mark.parametrize(
    ("callee", "name", "owner"),
    [
        (torch.add, "add", type(None)),
        (torch.ones(2).add, "add", torch.Tensor),
        (functools.partial(torch.mul, torch.ones(2)), "mul", type(None)),
        (nn.Linear(2, 2), "Linear", type(None)),
        (nn.Linear(2, 2).forward, "forward", nn.Linear),
        (nn.Linear, "Linear", type(None)),
        (torch.ops.aten.add.Tensor, "add.Tensor", type(None)),
        (torch.autograd.Function.apply, "apply", type(torch.autograd.Function)),
    ],
)
def test_name_and_owner_of_usual_callees(callee, name, owner) -> None:
    assert callee_name(callee) == name
    assert isinstance(bound_to(callee), owner)
    assert not is_compiled(callee)


class Child(nn.Module):
    def __init__(self, parent):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.parent = parent

    def forward(self, x):
        return x * self.scale + self.parent.shift


class Parent(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.ones(2))
        self.left = Child(self)
        self.right = Child(self)

    def forward(self, x):
        return self.right(self.left(x))


def test_module_whose_children_hold_it_is_walked_once_around(recorder, writer) -> None:
    model = Parent()
    site(4, model)(torch.ones(2))
    assert set(writer.slots(1, 0)) == {
        "arg[0]",
        "param.shift",
        "param.left.scale",
        "param.right.scale",
    }
    site(5, model.left)(torch.ones(2))
    assert set(writer.slots(2, 0)) == {
        "arg[0]",
        "param.scale",
        "param.parent.shift",
        "param.parent.right.scale",
    }
