"""Every kind of tensor: fingerprinted is what it stands for, and reading leaves it alone."""

from __future__ import annotations

import gc
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy
import pytest
import torch

from opguard.core.fingerprint import signature_bytes
from opguard.core.recording.names import Names
from opguard.core.recording.tensors import TensorReader

REGIONS = 4


class Kind(NamedTuple):
    """One kind of tensor.

    Attributes:
        make: Builds it from plain values, ``float32[4, 4]``.
        parts: The plain tensors that it stands for, by suffix of the slot.
    """

    make: Callable[[torch.Tensor], Any]
    parts: Callable[[Any], dict[str, torch.Tensor]]


def itself(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Logical values in row-major order, as bytes where torch cannot copy the dtype."""
    return {"": tensor.detach().resolve_conj().resolve_neg().clone()}


def one_byte(name: str) -> Kind:
    """A dtype that torch stores and, mostly, cannot compute with."""
    kind = getattr(torch, name)

    return Kind(
        lambda v: v.to(torch.uint8).view(kind).t(), lambda t: {"": t.t().view(torch.uint8).t()}
    )


def sparse(layout: str) -> Kind:
    names = {
        "csr": ("crow_indices", "col_indices"),
        "bsr": ("crow_indices", "col_indices"),
        "csc": ("ccol_indices", "row_indices"),
        "bsc": ("ccol_indices", "row_indices"),
    }[layout]
    block = ((2, 2),) if layout[0] == "b" else ()

    def parts(t: Any) -> dict[str, torch.Tensor]:
        return {f".{name}": getattr(t, name)().clone() for name in (*names, "values")}

    return Kind(lambda v: getattr(v, f"to_sparse_{layout}")(*block), parts)


def sparse_coo_parts(t: torch.Tensor) -> dict[str, torch.Tensor]:
    return {".indices": t._indices().clone(), ".values": t._values().detach().clone()}


def per_tensor(v: torch.Tensor) -> torch.Tensor:
    return torch.quantize_per_tensor(v, 0.5, 3, torch.qint8)


def per_channel(v: torch.Tensor) -> torch.Tensor:
    return torch.quantize_per_channel(v, torch.ones(4), torch.zeros(4), 0, torch.quint4x2)


def nested(v: torch.Tensor) -> torch.Tensor:
    return torch.nested.nested_tensor([v[:1], v[1:]])


def jagged(v: torch.Tensor) -> torch.Tensor:
    return torch.nested.nested_tensor([v[:1], v[1:]], layout=torch.jagged)


def jagged_parts(t: Any) -> dict[str, torch.Tensor]:
    names, _ = t.__tensor_flatten__()
    return {f".{name}": getattr(t, name).clone() for name in names}


def masked(v: torch.Tensor) -> Any:
    return torch.masked.masked_tensor(v, v > 2)


def parametrised(v: torch.Tensor) -> torch.Tensor:
    layer = torch.nn.Linear(4, 4)
    torch.nn.utils.parametrize.register_parametrization(layer, "weight", torch.nn.Softplus())
    layer.parametrizations.weight.original.data = v
    weight: torch.Tensor = layer.weight
    return weight


def without_memory(v: torch.Tensor) -> torch.Tensor:
    from torch.testing._internal.logging_tensor import LoggingTensor

    return LoggingTensor(v)


class Tagged(torch.Tensor):
    """A subclass with memory of its own."""


FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
SHELLS = (*(f"uint{bits}" for bits in range(1, 8)), "int4", "float4_e2m1fn_x2", "bits8")

KINDS = {
    "contiguous": Kind(lambda v: v, itself),
    "parameter": Kind(torch.nn.Parameter, itself),
    "buffer": Kind(torch.nn.Buffer, itself),
    "with history": Kind(lambda v: v.clone().requires_grad_() * 2, itself),
    "transposed": Kind(lambda v: v.t(), itself),
    "slice": Kind(lambda v: v[1:, ::2], itself),
    "expanded": Kind(lambda v: v[2, 2].expand(300, 5), itself),
    "overlapping": Kind(lambda v: v.as_strided((6, 3), (2, 1)), itself),
    "0-dim": Kind(lambda v: v[2, 2], itself),
    "bool": Kind(lambda v: v > 100, itself),
    "channels last": Kind(
        lambda v: v.reshape(1, 4, 2, 2).to(memory_format=torch.channels_last), itself
    ),
    "complex": Kind(lambda v: torch.complex(v, -v), itself),
    "conjugate": Kind(lambda v: torch.complex(v, v).conj(), itself),
    "negative": Kind(lambda v: torch.complex(v, v).conj().imag, itself),
    "bfloat16": Kind(lambda v: v.to(torch.bfloat16), itself),
    "uint64": Kind(lambda v: (-v.to(torch.int64)).view(torch.uint64), itself),
    **{name: one_byte(name) for name in FLOAT8 + SHELLS},
    "subclass": Kind(
        lambda v: v.as_subclass(Tagged), lambda t: itself(t.as_subclass(torch.Tensor))
    ),
    "quantised per tensor": Kind(
        per_tensor,
        lambda t: {
            "": t.int_repr(),
            ".scale": torch.tensor(t.q_scale(), dtype=torch.float64),
            ".zero_point": torch.tensor(t.q_zero_point()),
        },
    ),
    "quantised per channel": Kind(
        per_channel,
        lambda t: {
            "": t.int_repr(),
            ".scales": t.q_per_channel_scales(),
            ".zero_points": t.q_per_channel_zero_points(),
        },
    ),
    "sparse coo": Kind(lambda v: v.to_sparse(), sparse_coo_parts),
    "sparse hybrid": Kind(lambda v: v.to_sparse(1).requires_grad_(), sparse_coo_parts),
    **{f"sparse {layout}": sparse(layout) for layout in ("csr", "csc", "bsr", "bsc")},
    "nested": Kind(
        nested,
        lambda t: {
            ".0": t.unbind()[0].clone(),
            ".1": t.unbind()[1].clone(),
            ".sizes": t._nested_tensor_size(),
        },
    ),
    "jagged": Kind(jagged, jagged_parts),
    "masked": Kind(
        masked,
        lambda t: {
            "._masked_data": t._masked_data.clone(),
            "._masked_mask": t._masked_mask.clone(),
        },
    ),
    "mkldnn": Kind(lambda v: v.to_mkldnn(), lambda t: {"": t.to_dense()}),
    "parametrised": Kind(parametrised, itself),
    "wrapper": Kind(without_memory, lambda t: {"": t.elem.clone()}),
    "numpy": Kind(
        lambda v: v.numpy()[::-1, ::2],
        lambda t: {"": torch.from_numpy(numpy.ascontiguousarray(t))},
    ),
}


def state_of(tensor: Any) -> Any:
    """What reading must not change: versions, references, memory."""
    if isinstance(tensor, numpy.ndarray):
        return sys.getrefcount(tensor), tensor.ctypes.data, tensor.flags.writeable
    versions = None if tensor.is_inference() else tensor._version
    shape = None if is_strided_nested(tensor) else tensor.shape
    facts = (shape, tensor.dtype, tensor.layout, tensor.requires_grad, tensor.is_conj())
    node = tensor.grad_fn if tensor.requires_grad else None
    memory = None
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_nested
    if plain and tensor.layout is torch.strided:
        memory = (tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())
    return sys.getrefcount(tensor), versions, facts, type(tensor), node, memory, dict(vars(tensor))


def is_strided_nested(tensor: torch.Tensor) -> bool:
    return tensor.is_nested and tensor.layout is torch.strided


@pytest.fixture
def read(writer: Any) -> Callable[[Any], dict[str, bytes | str]]:
    reader = TensorReader(writer, Names(writer), REGIONS)

    def read(tensor: Any) -> dict[str, bytes | str]:
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            found = reader.read("", tensor)
        return {
            s: r.signature if r.signature is not None else writer.names[r.note] for s, r in found
        }

    return read


def values(changed: bool) -> torch.Tensor:
    tensor = torch.arange(1.0, 17.0).reshape(4, 4)
    if changed:
        tensor[2, 2] = 127.0
    return tensor


@pytest.mark.requirement("F1")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KINDS)
def test_kind_is_read_by_its_logical_contents_and_left_alone(name: str, read: Any) -> None:
    kind = KINDS[name]
    tensor = kind.make(values(False))
    gc.collect()
    before = state_of(tensor)
    found = read(tensor)
    assert state_of(tensor) == before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = kind.parts(tensor)
    assert found == {
        suffix: signature_bytes(part.detach().contiguous(), REGIONS)
        for suffix, part in parts.items()
    }
    assert read(kind.make(values(True))) != found
    gone = weakref.ref(tensor)
    del tensor, before
    assert gone() is None


@pytest.mark.requirement("F12")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda v: v.to("meta"), "meta tensor"),
        (lambda v: torch._to_functional_tensor(v), "functional tensor"),
        (lambda v: fake(v), "FakeTensor has no memory of its own"),
        (lambda v: freed(v.clone()), "storage is freed"),
        (lambda v: pending(v), "pending collective"),
        (lambda v: numpy.array([v], dtype=object), "numpy array of Python objects"),
    ],
)
def test_kind_that_cannot_be_read_says_why(make: Any, reason: str, read: Any) -> None:
    assert read(make(values(False))) == {"": reason}


def fake(v: torch.Tensor) -> torch.Tensor:
    from torch._subclasses import FakeTensorMode

    return FakeTensorMode().from_tensor(v)


def freed(v: torch.Tensor) -> torch.Tensor:
    v.untyped_storage().resize_(0)
    return v


def pending(v: torch.Tensor) -> torch.Tensor:
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    return AsyncCollectiveTensor(v)


def test_zero_tensor_is_read_as_zeros(read: Any) -> None:
    zeros = signature_bytes(torch.zeros(3), REGIONS)
    assert read(torch._efficientzerotensor(3)) == {"": zeros}


def test_masked_array_is_read_with_its_mask(read: Any) -> None:
    array = numpy.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
    assert set(read(array)) == {"", ".mask"}
    other = numpy.ma.array([1.0, 2.0, 3.0], mask=[False, False, True])
    assert read(other) != read(array)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dimension", [0, 1])
def test_tensor_inside_vmap_is_read_with_all_its_samples(dimension: int, read: Any) -> None:
    found = []

    def function(x: torch.Tensor) -> torch.Tensor:
        found.append(read(x))
        return x.square().sum()

    data = values(False)
    torch.vmap(torch.func.grad(function), in_dims=dimension)(data)
    torch.func.jvp(function, (data,), (torch.ones_like(data),))
    expected = signature_bytes(data, REGIONS)
    assert found == [{f".batched[{dimension}]": expected}, {"": expected}]


def test_distributed_tensor_is_read_by_its_local_shard(read: Any) -> None:
    from torch.distributed.tensor import DTensor

    local = values(False)
    sharded = DTensor.__new__(DTensor, local, spec_of(local), requires_grad=False)
    assert read(sharded) == {"": signature_bytes(local, REGIONS)}


def spec_of(local: torch.Tensor) -> Any:
    """A layout over two ranks, of which no process group need exist."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    mesh = DeviceMesh("cpu", [0, 1], _init_backend=False, _rank=0)
    meta = TensorMeta(torch.Size([8, 4]), (4, 1), local.dtype)
    return DTensorSpec(mesh, (Shard(0),), meta)
