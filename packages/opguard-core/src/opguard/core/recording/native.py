"""Connects the native half of the recorder to torch."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import xorsig
from opguard.core.compiled import hidden_from_compiler
from opguard.core.recording.called import TELLING, describe
from opguard.core.recording.flatten import Slots, flatten, plain_text, value_text
from opguard.core.recording.modules import NAMING, named_members
from opguard.core.recording.names import Names, encodable
from opguard.core.recording.purity import facts
from opguard.core.recording.random_state import RandomState
from opguard.core.recording.tensors import TensorReader, in_functorch

# Versions of torch with whose C++ functions this was tested. What a function takes is part of its
# symbol's name; what it returns is not, nor what a structure holds that it takes by value. One that
# differs in that could not be called even to find that out. The C functions that say most of a
# tensor are stable, and have no such list.
TESTED = frozenset({"2.13", "2.14", "2.15"})

# After so many autograd nodes one is old; and so many old ones may still wait for their gradients.
REMEMBERED = (1 << 19, 1 << 17)


def connect(
    recorder: xorsig.Recorder,
    reader: TensorReader,
    names: Names,
    random: RandomState,
    *,
    deep: set[int],
    phases: Sequence[int],
    native: bool,
) -> bool:
    """Give the native half what it needs.

    Args:
        recorder: Its state.
        reader: Reads the tensors that it cannot.
        names: Interned texts of the capture.
        random: Reads the random generators.
        deep: Callsites that it leaves to the Python half; more may be added.
        phases: Phases of a training that are recorded.
        native: Whether it is to record calls by itself; gradients it records in any case.

    Returns:
        Whether it reads tensors and gradients without Python. It does where the fields of this
        torch's tensors lie where its C functions, and a few tensors with known fields, say.
    """

    def classify(callee: Any) -> tuple[int, bool, int, frozenset[str]] | None:
        found = facts(callee) if native else None
        if found is None:
            return None
        return names.id(found.name), found.random, found.max_arguments, found.refused

    properties = torch._C.TensorBase.__dict__
    return recorder.connect(
        {
            "tensor_types": (torch.Tensor, torch.nn.Parameter),
            "probes": _probes(),
            "tested": _is_tested(),
            "autograd_probes": _autograd_probes() if _is_tested() else [],
            "make_node": _make_node,
            "remembered": REMEMBERED,
            "take_handle": getattr(torch._C._aoti, "alloc_tensor_by_stealing_from_void_ptr", None),
            "library": str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"),
            "reader": _Unusual(reader),
            "value_types": (bytes, complex, range, slice, torch.device, torch.Size),
            "single_types": (torch.dtype, torch.layout, torch.memory_format, type(...)),
            "value_text": hidden_from_compiler(value_text),
            "callee_types": (types.FunctionType, types.MethodType, types.MethodDescriptorType),
            "native": native,
            "deep": deep,
            "phases": {int(phase) for phase in phases},
            "classify": hidden_from_compiler(classify),
            "properties": [properties[name] for name in _PROPERTIES],
            "modes": (torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack),
            "backward": torch._C._current_graph_task_id,
            "weak_references": (
                properties["untyped_storage"],
                torch._C.StorageBase._weak_ref,  # type: ignore[attr-defined]
                torch._C.StorageBase._free_weak_ref,  # type: ignore[attr-defined]
                torch._C._WeakTensorRef,  # type: ignore[attr-defined]
            ),
            "get_state": torch.default_generator.get_state,
            "generators": _generator_probes() if _is_tested() else None,
            "cuda": torch.cuda,
            "random_module": sys.modules["random"],
            "modules": sys.modules,
            "random": _Generators(random),
            "naming": [(name, getattr(torch.nn.Module, name)) for name in NAMING],
            "named_members": hidden_from_compiler(named_members),
            "describe": hidden_from_compiler(describe),
            "telling": list(TELLING),
            "flatten_arguments": hidden_from_compiler(_flatten_arguments),
            "flatten_result": hidden_from_compiler(_flatten_result),
            "plain_text": hidden_from_compiler(plain_text),
        }
    )


def _make_node(
    outputs: int, used: int, view: bool
) -> tuple[Callable[[], object], torch.Tensor, int, list[int]]:
    """Make an autograd node of which facts are known.

    Args:
        outputs: Number of its outputs.
        used: Number of the output that gets a gradient.
        view: Whether the outputs are views.

    Returns:
        A function that runs the node, that output, the node's number, and the address of the
        implementation of the gradient of every output, 0 for one without.
    """
    # The node is called by itself: the first backward pass of a process starts threads, and looks
    # for devices, which a program may not want before it forks. It saves no tensor, which a hook of
    # the program might hear of.
    with (
        torch._C.DisableTorchFunction(),
        torch._C._DisableTorchDispatch(),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        leaf = torch.ones(outputs, 2, device="cpu", requires_grad=True)
        made: Any = leaf.unbind() if view else torch.unbind_copy(leaf)  # type: ignore[func-returns-value]
        tensor = made[used]
        node: Any = tensor.grad_fn
        gradients = [torch.ones_like(t) if i == used else None for i, t in enumerate(made)]
    addresses = [0 if gradient is None else gradient._cdata for gradient in gradients]

    def run() -> object:
        with (
            torch._C.DisableTorchFunction(),
            torch._C._DisableTorchDispatch(),
            torch.inference_mode(False),
            torch.no_grad(),
        ):
            return node(*gradients)

    return run, tensor, node._sequence_nr(), addresses


_PROPERTIES = ("requires_grad", "grad_fn", "output_nr", "is_leaf", "grad")


class _Generators:
    """What the native half asks about random generators."""

    def __init__(self, random: RandomState) -> None:
        self.digests = hidden_from_compiler(random.digests)
        self.python_source = hidden_from_compiler(random.python_source)
        self.numpy_source = hidden_from_compiler(random.numpy_source)


def _flatten_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Slots of arguments of any kind: tensors, values, modules and optimizers."""
    slots = Slots()
    for position, item in enumerate(args):
        flatten(item, f"arg[{position}]", f"value.arg[{position}]", slots)
    for key, item in kwargs.items():
        flatten(item, f"kwarg.{key}", f"value.{key}", slots)
    return _encodable(slots)


def _flatten_result(result: Any) -> tuple[Any, ...]:
    """Slots of a result of any kind, as :func:`_flatten_arguments` gives them."""
    slots = Slots()
    flatten(result, "out", "out", slots)
    return _encodable(slots)


def _encodable(slots: Slots) -> tuple[Any, ...]:
    return (
        [(encodable(slot), tensor) for slot, tensor in slots.tensors],
        [(encodable(slot), encodable(text)) for slot, text in slots.values],
        [(encodable(slot), module) for slot, module in slots.modules],
        slots.optimizers,
    )


class _Unusual:
    """What the native half asks about tensors that it cannot read, or has not seen the like of."""

    def __init__(self, reader: TensorReader) -> None:
        self.read = hidden_from_compiler(reader.read)
        self.describe = hidden_from_compiler(reader.describe)
        self.is_watchable = hidden_from_compiler(_is_watchable)
        self.is_plain_cpu = hidden_from_compiler(reader.is_plain_cpu)
        self.dtype = hidden_from_compiler(_dtype)
        self.key = hidden_from_compiler(_key)
        self.storage = hidden_from_compiler(_storage)


def _is_watchable(tensor: Any) -> bool:
    """Whether gradients flow back through a tensor, outside functorch transforms."""
    is_tensor = isinstance(tensor, torch.Tensor)
    return is_tensor and not in_functorch(tensor) and tensor.requires_grad


def _dtype(tensor: torch.Tensor) -> tuple[str, int]:
    """Name of a tensor's element type, and bytes of an element."""
    return str(tensor.dtype).removeprefix("torch."), tensor.dtype.itemsize


def _key(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Version counter, address, and address of the storage.

    One made in inference mode has no counter, which is -1 then. A tensor without memory of its own
    has address 0 and, instead of the storage's, the address of its implementation.
    """
    try:
        version = tensor._version
    except (AttributeError, RuntimeError, TypeError):
        version = -1
    try:
        return version, tensor.data_ptr(), torch._C._storage_address(tensor)  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError, TypeError):
        return version, 0, tensor._cdata


def _storage(tensor: torch.Tensor) -> int:
    """Address of the memory behind a tensor; 0 for one without."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (AttributeError, RuntimeError, TypeError):
        return 0


def _probes() -> list[tuple[torch.Tensor, int, int, int]]:
    """Tensors that differ in their fields.

    Returns:
        Tensor, address of its implementation, dispatch keys, address of its storage.
    """
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        plain = torch.empty(2, 3, device="cpu")
        with torch.inference_mode():
            inference = torch.empty(1, device="cpu")
        conjugate = torch.empty(1, dtype=torch.complex64, device="cpu").conj()
        tensors = [plain, inference, conjugate, torch.empty(1, device="meta"), plain.t()]
        return [
            (
                t,
                t._cdata,
                torch._C._dispatch_keys(t).raw_repr(),
                torch._C._storage_address(t),  # type: ignore[attr-defined]
            )
            for t in tensors
        ]


def _generator_probes() -> tuple[int, int, list[Callable[[], object]], list[Callable[[], object]]]:
    """The generator that torch draws from, and another one that may be moved.

    Returns:
        Addresses of the objects behind both, functions that move the other one, functions that only
        read it.
    """
    probe = torch.Generator()
    other = torch.Generator().manual_seed(5).get_state()

    def drawing(draw: Callable[..., object], dtype: torch.dtype) -> Callable[[], object]:
        def move() -> object:
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                return draw(3, generator=probe, dtype=dtype, device="cpu")

        return move

    moves: list[Callable[[], object]] = [
        drawing(torch.rand, torch.float32),
        drawing(torch.randn, torch.float32),
        drawing(torch.randn, torch.float64),
        drawing(torch.randperm, torch.int64),
        lambda: probe.manual_seed(3),
        lambda: probe.set_state(other),
    ]
    looks: list[Callable[[], object]] = [probe.get_state, probe.initial_seed]
    generators: list[Any] = [torch.default_generator, probe]
    address, probe_address = (generator._cdata for generator in generators)
    return address, probe_address, moves, looks


def _is_tested() -> bool:
    return ".".join(torch.__version__.split(".")[:2]) in TESTED


def _autograd_probes() -> list[tuple[torch.Tensor, int, int, int | None]]:
    """Plain tensors that differ in what autograd keeps of them.

    Returns:
        Tensor, version, address of its gradient's implementation or 0, number of its node if any.
    """
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), torch.enable_grad():
        written = [torch.ones(2, device="cpu") for _ in range(4)]
        for times, tensor in zip((0, 3, 11, 300), written, strict=True):
            for _ in range(times):
                tensor.zero_()
        leaves = [torch.ones(2, device="cpu", requires_grad=True) for _ in range(5)]
        for leaf in leaves[:3]:
            leaf.grad = torch.ones(2, device="cpu")
        made = [leaf.detach().requires_grad_().clone() for leaf in leaves[:3]]
        found = [(tensor, tensor._version, 0, None) for tensor in written]
        for leaf in leaves:
            gradient = leaf.grad
            found.append((leaf, leaf._version, 0 if gradient is None else gradient._cdata, None))
        nodes = [(t, t.grad_fn) for t in made]
        return [
            *found,
            *((t, t._version, 0, n._sequence_nr()) for t, n in nodes if n is not None),
        ]
