"""Parameters and gradients that are made anew in the memory of those before them."""

import itertools
import threading
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn

from opguard.core import _site
from opguard.core._site import site
from opguard.core.recording.recorder import CallRecorder

# Blocks of these bytes are given out again at once, some by one function of the allocator and some
# by another.
SIZES = (16, 64, 128, 512)
TIMES = 20


@pytest.fixture(params=[True, False], ids=["native", "python"])
def native(request) -> bool:
    return request.param


def drop_and_make_a_gradient(parameter: nn.Parameter, value: float) -> torch.Tensor:
    parameter.grad = None
    parameter.grad = torch.full(parameter.shape, value)
    return parameter.grad


def give_the_gradient_other_memory(parameter: nn.Parameter, value: float) -> torch.Tensor:
    shape = parameter.shape
    parameter.grad.data = torch.empty(0)
    parameter.grad.data = torch.full(shape, value)
    return parameter.grad


def give_the_parameter_other_memory(parameter: nn.Parameter, value: float) -> torch.Tensor:
    shape = parameter.shape
    parameter.data = torch.empty(0)
    parameter.data = torch.full(shape, value)
    return parameter


@pytest.mark.parametrize(
    ("change", "slot"),
    [
        (drop_and_make_a_gradient, "grad.param.weight"),
        (give_the_gradient_other_memory, "grad.param.weight"),
        (give_the_parameter_other_memory, "param.weight"),
    ],
)
def test_other_values_at_the_same_address_are_an_effect(
    change: Callable[[nn.Parameter, float], torch.Tensor], slot, new_writer, native
) -> None:
    reused = 0
    for size in SIZES:
        writer = new_writer()
        recorder = CallRecorder(writer, 4, threading.get_ident(), native=native)
        module = nn.Linear(size, size, bias=False)
        module.weight.grad = torch.zeros(size, size)
        keys: list[tuple[int, int]] = []

        def call(value: float, module=module, keys=keys) -> None:
            tensor = change(module.weight, value)
            keys.append((tensor.data_ptr(), tensor._version))

        _site.install(recorder)
        try:
            site(0, module)(torch.ones(1, size))
            for number in range(TIMES):
                site(1, call)(float(number + 1))
        finally:
            _site.install(None)
            recorder.close()
        reused += sum(before == after for before, after in itertools.pairwise(keys))
        effects = [record.call for record in writer.tensors if record.role == 3]
        assert effects == list(range(2, TIMES + 2)), f"of {size} numbers a side"
        assert {record.slot for record in writer.tensors if record.role == 3} == {slot}
        assert recorder.failures == 0
    assert reused > 0, "the allocator gave no block out again, so that nothing was tested"


def test_other_sparse_gradient_is_an_effect(recorder, writer) -> None:
    module = nn.Embedding(8, 2, sparse=True)
    parameter = module.weight

    def drop_and_make(value: float) -> None:
        parameter.grad = None
        values = [[value, value]]
        parameter.grad = torch.sparse_coo_tensor([[1]], values, (8, 2), check_invariants=True)

    def write() -> None:
        parameter.grad.mul_(2.0)

    site(0, module)(torch.tensor([1]))
    for number in range(TIMES):
        site(1, drop_and_make)(float(number))
    site(2, write)()
    assert recorder.failures == 0
    effects = {record.call for record in writer.tensors if record.role == 3}
    assert effects == set(range(2, TIMES + 3))


def test_memory_of_what_was_looked_at_is_given_back(recorder) -> None:
    module = nn.Linear(4, 4)
    site(0, module)(torch.ones(1, 4)).sum().backward()
    site(1, lambda: None)()
    gradient = module.weight.grad
    storage = gradient.untyped_storage()
    alive = weakref.ref(gradient)
    expired = torch.multiprocessing.reductions.StorageWeakRef(storage)
    module.zero_grad()
    del gradient, storage
    assert alive() is None
    assert expired.expired()
