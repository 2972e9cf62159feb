"""Parameters and gradients that are made anew in the memory of those before them."""

import gc
import itertools
import threading
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn

import xorsig
from opguard.core import _site
from opguard.core._site import site
from opguard.core.recording.recorder import CallRecorder
from opguard.core.recording.tensors import TensorReader

# Blocks of these bytes are given out again at once, some by one function of the allocator and some
# by another.
SIZES = (16, 64, 128, 512)
TIMES = 20


@pytest.fixture(params=[True, False], ids=["native", "python"])
def native(request) -> bool:
    return request.param


def filled(shape: torch.Size, value: float, address: int) -> torch.Tensor:
    """A tensor in the block that was just freed at ``address``, if the allocator gives it out."""
    others = []
    for _ in range(50):
        tensor = torch.full(shape, value)
        if tensor.data_ptr() == address:
            break
        others.append(tensor)
    return tensor


def drop_and_make_a_gradient(parameter: nn.Parameter, value: float) -> torch.Tensor:
    address = parameter.grad.data_ptr()
    parameter.grad = None
    parameter.grad = filled(parameter.shape, value, address)
    return parameter.grad


def give_the_gradient_other_memory(parameter: nn.Parameter, value: float) -> torch.Tensor:
    give_other_memory(parameter.grad, value)
    return parameter.grad


def give_the_parameter_other_memory(parameter: nn.Parameter, value: float) -> torch.Tensor:
    give_other_memory(parameter, value)
    return parameter


def give_other_memory(tensor: torch.Tensor, value: float) -> None:
    shape, address = tensor.shape, tensor.data_ptr()
    tensor.data = torch.empty(0)
    tensor.data = filled(shape, value, address)


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


def test_parameters_made_in_inference_mode_are_read_once_while_nothing_writes_to_them(
    writer, monkeypatch
) -> None:
    read = []
    whole = TensorReader.read
    monkeypatch.setattr(TensorReader, "read", lambda *of: [read.append(of[-1]), whole(*of)][1])
    with torch.inference_mode():
        teacher = nn.Linear(2, 2)
    recorder = CallRecorder(writer, 4, threading.get_ident(), native=False)
    _site.install(recorder)
    try:
        with torch.inference_mode():
            site(0, teacher)(torch.ones(1, 2))
        of_parameters = len(read)
        for _ in range(3):
            site(1, lambda: None)()
        assert len(read) == of_parameters
    finally:
        _site.install(None)
        recorder.close()
    assert recorder.failures == 0


def test_every_weak_reference_is_given_back(writer, monkeypatch, native) -> None:
    held = []

    def connect(recorder, parts):
        storage, take, give_back, tensor = parts["weak_references"]

        def counted_take(of):
            held.append(take(of))
            return held[-1]

        def counted_give_back(address):
            held.remove(address)
            give_back(address)

        counted = (storage, counted_take, counted_give_back, tensor)
        return xorsig.Recorder.connect(recorder, parts | {"weak_references": counted})

    monkeypatch.setattr(CallRecorder, "connect", connect, raising=False)
    recorder = CallRecorder(writer, 4, threading.get_ident(), native=native)
    _site.install(recorder)
    try:
        module = nn.Linear(4, 4)
        for _ in range(3):
            module.zero_grad()
            site(0, module)(torch.ones(1, 4)).sum().backward()
            site(1, lambda: None)()
        parameters_and_gradients = 4
        assert len(held) == parameters_and_gradients
        module.zero_grad()
        module.weight.data = torch.zeros(4, 4)
        site(1, lambda: None)()
        assert len(held) == len(list(module.parameters()))
        del module
        site(1, lambda: None)()
        assert held == []
    finally:
        _site.install(None)
        recorder.close()
    assert recorder.failures == 0


def test_a_recorder_that_ends_gives_its_weak_references_back(writer, monkeypatch) -> None:
    given_back = []
    monkeypatch.setattr(CallRecorder, "connect", _noting(given_back), raising=False)
    recorder = CallRecorder(writer, 4, threading.get_ident())
    _site.install(recorder)
    module = nn.Linear(4, 4)
    site(0, module)(torch.ones(1, 4))
    _site.install(None)
    recorder.close()
    assert given_back == []
    del recorder
    gc.collect()
    assert len(given_back) == len(list(module.parameters()))


def _noting(given_back):
    def connect(recorder, parts):
        storage, take, give_back, tensor = parts["weak_references"]

        def note(address):
            given_back.append(address)
            give_back(address)

        return xorsig.Recorder.connect(
            recorder, parts | {"weak_references": (storage, take, note, tensor)}
        )

    return connect
