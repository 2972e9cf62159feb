"""Parameters and gradients that are made anew in the memory of those before them."""

import gc
import struct
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

TIMES = 20


@pytest.fixture(params=[True, False], ids=["native", "python"])
def native(request) -> bool:
    return request.param


class OneBlock:
    """Memory of ``side * side`` numbers that each new storage is made in.

    An allocator gives a freed block out again when it likes; here it always happens.
    """

    def __init__(self, side: int):
        self.side = side
        self.memory = bytearray(4 * side * side)

    def filled(self, value: float) -> torch.Tensor:
        """A new float32 tensor, ``side`` by ``side``, all ``value``, in a storage of its own."""
        self.memory[:] = struct.pack("=f", value) * (self.side * self.side)
        return torch.frombuffer(self.memory, dtype=torch.float32).view(self.side, self.side)


def drop_and_make_a_gradient(parameter: nn.Parameter, block: OneBlock, value: float):
    parameter.grad = None
    parameter.grad = block.filled(value)
    return parameter.grad


def give_the_gradient_other_memory(parameter: nn.Parameter, block: OneBlock, value: float):
    parameter.grad.data = block.filled(value)
    return parameter.grad


def give_the_parameter_other_memory(parameter: nn.Parameter, block: OneBlock, value: float):
    parameter.data = block.filled(value)
    return parameter


@pytest.mark.parametrize("side", [16, 512])
@pytest.mark.parametrize(
    ("change", "slot"),
    [
        (drop_and_make_a_gradient, "grad.param.weight"),
        (give_the_gradient_other_memory, "grad.param.weight"),
        (give_the_parameter_other_memory, "param.weight"),
    ],
)
def test_other_values_at_the_same_address_are_an_effect(
    change: Callable[[nn.Parameter, OneBlock, float], torch.Tensor], slot, side, writer, native
) -> None:
    recorder = CallRecorder(writer, 4, threading.get_ident(), native=native)
    module = nn.Linear(side, side, bias=False)
    block = OneBlock(side)
    module.weight.data = block.filled(0.0)
    module.weight.grad = torch.zeros(side, side)
    keys: list[tuple[int, int]] = []

    def call(value: float) -> None:
        tensor = change(module.weight, block, value)
        keys.append((tensor.data_ptr(), tensor._version))

    _site.install(recorder)
    try:
        site(0, module)(torch.ones(1, side))
        for number in range(TIMES):
            site(1, call)(float(number + 1))
    finally:
        _site.install(None)
        recorder.close()
    assert len(set(keys)) == 1, "neither the address nor the version tells the storages apart"
    effects = [record.call for record in writer.tensors if record.role == 3]
    assert effects == list(range(2, TIMES + 2))
    assert {record.slot for record in writer.tensors if record.role == 3} == {slot}
    assert recorder.failures == 0


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
