"""Tensors and deciding values are found in whatever container a program hands around."""

from __future__ import annotations

import collections
import dataclasses
import enum
import types
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from torch.utils._pytree import SUPPORTED_NODES, register_pytree_node

from opguard.core.recording.flatten import MAX_SLOTS, Slots, flatten

A, B = torch.ones(2), torch.zeros(3)


def found(item: Any) -> tuple[dict[str, Any], dict[str, str]]:
    slots = Slots()
    flatten(item, "arg[0]", "value.arg[0]", slots)
    return dict(slots.tensors), dict(slots.values)


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Batch:
    x: Any
    scale: float


@dataclasses.dataclass(slots=True)
class SlottedBatch:
    x: Any
    scale: float


class ModelOutput(collections.OrderedDict):
    """As the outputs of model libraries are."""

    def items(self) -> Any:
        raise AssertionError("the workload's own items() was used")


class Holder:
    """A user's own batch: tensors as attributes, in slots, and in a list and dict."""

    __slots__ = ("__dict__", "empty", "mask")

    def __init__(self) -> None:
        self.mask = B
        self.x = A
        self.many = [A, 1]
        self.named = {"b": B}
        self.inner = Batch(A, 1.0)

    @property
    def made_up(self) -> Any:
        raise AssertionError("a property was read")


class Reduction(enum.Enum):
    MEAN = 1
    SUM = 2


class Cache:
    """Registered with torch as a container by whoever wrote it."""

    def __init__(self, *layers: Any) -> None:
        self.layers = layers


@pytest.fixture
def registered() -> Any:
    register_pytree_node(Cache, lambda c: (list(c.layers), None), lambda c, _: Cache(*c))
    yield
    del SUPPORTED_NODES[Cache]


@pytest.mark.parametrize(
    ("item", "tensors"),
    [
        ([A, (B,)], {"[0]": A, "[1][0]": B}),
        ({"a": A, 3: [B]}, {".a": A, ".3[0]": B}),
        (Pair(A, {"b": B}), {".first": A, ".second.b": B}),
        (Batch([A], 2.0), {".x[0]": A}),
        (SlottedBatch([A], 2.0), {".x[0]": A}),
        (ModelOutput(loss=A, logits=B), {".loss": A, ".logits": B}),
        (collections.UserDict(a=A), {".a": A}),
        (collections.deque([A, B]), {"[0]": A, "[1]": B}),
        (collections.defaultdict(list, a=[A]), {".a[0]": A}),
        (types.SimpleNamespace(a=A), {".a": A}),
        (types.MappingProxyType({"a": A}), {}),
        (Holder(), {".mask": B, ".x": A, ".many[0]": A, ".named.b": B}),
        (torch.nn.utils.rnn.pack_sequence([A]), {".data": A, ".batch_sizes": torch.tensor([1, 1])}),
        (torch.distributions.Normal(A, A), {".loc": A, ".scale": A}),
    ],
)
def test_tensors_are_found_in_containers(item: Any, tensors: dict[str, Any]) -> None:
    slots, _ = found(item)
    assert slots.keys() == {"arg[0]" + suffix for suffix in tensors}
    assert all(torch.equal(slots["arg[0]" + suffix], t) for suffix, t in tensors.items())


def test_registered_containers_are_opened_by_their_own_function(registered: None) -> None:
    slots, values = found(Cache(A, [B, 0.5]))
    assert slots == {"arg[0][0]": A, "arg[0][1][0]": B}
    assert values == {"value.arg[0][1][1]": "0.5"}


def test_a_registered_function_that_fails_leaves_the_attributes(registered: None) -> None:
    cache = Cache()
    del cache.layers
    cache.x = A
    assert found(cache) == ({"arg[0].x": A}, {"value.arg[0]": "<Cache>"})


def test_classes_made_by_attrs_are_opened_like_dataclasses() -> None:
    attrs = pytest.importorskip("attrs")
    made = attrs.make_class("Made", ["x", "scale"])(x=[A], scale=2.0)
    assert found(made) == ({"arg[0].x[0]": A}, {"value.arg[0].scale": "2.0"})


def test_members_of_enumerations_are_values() -> None:
    assert found(Reduction.SUM) == ({}, {"value.arg[0]": "<Reduction.SUM>"})


def test_containers_that_hold_themselves_or_too_much_are_cut_off() -> None:
    loop: list[Any] = [A]
    loop.append(loop)
    slots, _ = found(loop)
    assert len(slots) == 6
    wide: Any = [{str(i): str(i) for i in range(100)} for _ in range(400)]
    _, values = found([wide, wide])
    assert len(values) < MAX_SLOTS + 1000


def test_numpy_arrays_and_numbers_are_found() -> None:
    array = numpy.ones(2)
    slots, values = found([array, numpy.float32(2)])
    assert list(slots) == ["arg[0][0]"]
    assert values == {"value.arg[0][1]": "np.float32(2.0)"}


class Shouting(str):
    """A key whose text must not be asked for."""

    def __str__(self) -> str:
        raise RuntimeError

    __format__ = __repr__ = __str__


class Key:
    def __repr__(self) -> str:
        raise RuntimeError


class Colour(enum.Enum):
    RED = 1


def test_text_of_a_key_is_not_asked_of_the_workload() -> None:
    held = {Key(): A, Key(): B, A: B, Shouting("s"): A, Colour.RED: A, (1, Key()): A, 2: A, None: B}
    expected = {
        "<Key>#0": A,
        "<Key>#1": B,
        "<Tensor>#2": B,
        "s": A,
        "Colour.RED": A,
        "(1, <Key>#5)": A,
        "2": A,
        "None": B,
    }
    tensors, values = found(held)
    assert tensors == {f"arg[0].{name}": tensor for name, tensor in expected.items()}
    assert values == {}
    tensors, _ = found(types.SimpleNamespace(held=held))
    assert tensors == {f"arg[0].held.{name}": tensor for name, tensor in expected.items()}
