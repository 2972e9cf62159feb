"""Reading tensors: which bytes a tensor stands for, and their fingerprint, without changing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

import xorsig
from opguard.core.fingerprint import signature_bytes
from opguard.core.interruption import comes_from_signal_handler
from opguard.core.recording.names import Names

if TYPE_CHECKING:
    from xorsig import CaptureWriter

_PLAIN_KEYS = {
    "CPU",
    "CUDA",
    "ADInplaceOrView",
    "AutogradCPU",
    "AutogradCUDA",
    "AutocastCPU",
    "AutocastCUDA",
}
_RESOLVABLE_KEYS = {"Conjugate", "Negative", "ZeroTensor"}
_SPARSE_PARTS: dict[torch.layout, tuple[tuple[str, Callable[[Any], Any]], ...]] = {
    torch.sparse_coo: (
        ("indices", torch.Tensor._indices),
        ("values", torch.Tensor._values),
    ),
    torch.sparse_csr: (
        ("crow_indices", torch.Tensor.crow_indices),
        ("col_indices", torch.Tensor.col_indices),
        ("values", torch.Tensor.values),
    ),
    torch.sparse_csc: (
        ("ccol_indices", torch.Tensor.ccol_indices),
        ("row_indices", torch.Tensor.row_indices),
        ("values", torch.Tensor.values),
    ),
}
_SPARSE_PARTS[torch.sparse_bsr] = _SPARSE_PARTS[torch.sparse_csr]
_SPARSE_PARTS[torch.sparse_bsc] = _SPARSE_PARTS[torch.sparse_csc]


class Reading(NamedTuple):
    """A tensor as recorded: what it is, and what its bytes are.

    Attributes:
        layout: Interned id of dtype, shape, strides, device and kind.
        signature: ``8 * regions`` bytes, both schemes; ``None`` when the bytes cannot be read.
        note: Interned id of the reason when ``signature`` is ``None``, else 0.
    """

    layout: int
    signature: bytes | None
    note: int


class TensorReader:
    """Fingerprints tensors for one capture.

    Every method expects torch's function overrides and dispatch modes to be disabled by the
    caller, so that a workload's own modes and subclasses do not see the tracer's reads.
    """

    def __init__(self, writer: CaptureWriter, names: Names, regions: int) -> None:
        self._writer = writer
        self._names = names
        self._regions = regions
        self._layouts: dict[tuple[Any, ...], tuple[int, int, int]] = {}
        self._keysets: dict[int, str] = {}

    def read(self, slot: str, tensor: Any) -> list[tuple[str, Reading]]:
        """Fingerprint a tensor, or each of its components.

        Args:
            slot: The slot that holds it; components get ``slot.indices`` and so on.
            tensor: A ``torch.Tensor`` of any kind, or a ``numpy.ndarray``.

        Returns:
            Pairs of slot and reading, at least one; a kind that cannot be read says why.
        """
        return list(self._parts(slot, tensor, 0))

    def describe(self, tensor: Any, reason: str) -> Reading:
        """A reading of the metadata alone, for bytes that mean nothing (``torch.empty``)."""
        try:
            shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
            device = str(getattr(tensor, "device", "cpu"))
        except (AttributeError, RuntimeError, TypeError):
            shape, dtype, device = (), "unknown", "unknown"
        layout = self._writer.layout(dtype, shape, None, device, "unread", 0)
        return Reading(layout, None, self._names.id(reason))

    def _parts(self, slot: str, tensor: Any, depth: int) -> Iterator[tuple[str, Reading]]:
        kind = type(tensor)
        try:
            if not isinstance(tensor, torch.Tensor):
                yield slot, self._numpy(tensor)
                return
            if kind is torch.Tensor or kind is torch.nn.Parameter:
                category = self._category(tensor)
                if category == "plain":
                    yield slot, self._strided(tensor)
                    return
            elif depth > 4:
                category = "wrapper nested too deeply"
            else:
                inner = _inner_tensors(tensor)
                if inner is not None:
                    reason, parts = inner
                    if reason:
                        yield slot, self.describe(tensor, reason)
                        return
                    for name, part in parts:
                        suffix = f"{slot}.{name}" if len(parts) > 1 else slot
                        yield from self._parts(suffix, part, depth + 1)
                    return
                category = self._category(tensor)
                if category == "plain":
                    yield slot, self._strided(tensor)
                    return
            if category == "resolvable":
                with torch.no_grad():
                    yield slot, self._strided(tensor.resolve_conj().resolve_neg().contiguous())
                return
            components = _components(tensor, category)
            if components is None:
                yield slot, self.describe(tensor, category)
                return
            for name, part in components:
                yield from self._parts(f"{slot}.{name}" if name else slot, part, depth + 1)
        except Exception as error:
            if comes_from_signal_handler(error):
                raise
            yield slot, self.describe(tensor, f"unreadable: {type(error).__name__}: {error}"[:200])

    def _category(self, tensor: torch.Tensor) -> str:
        keyset = torch._C._dispatch_keys(tensor)
        raw = keyset.raw_repr()
        category = self._keysets.get(raw)
        if category is None:
            keys = set(repr(keyset).partition("(")[2].rstrip(")").split(", "))
            if keys <= _PLAIN_KEYS:
                category = "plain"
            elif keys <= _PLAIN_KEYS | _RESOLVABLE_KEYS:
                category = "resolvable"
            else:
                category = _category_of(keys)
            self._keysets[raw] = category
        return category

    def _strided(self, tensor: torch.Tensor) -> Reading:
        get: Any = torch.Tensor
        if tensor.is_cpu:
            # Unbound accessors: a subclass without storage of its own may override the properties.
            shape, strides = get.shape.__get__(tensor), get.stride(tensor)
            key: tuple[Any, ...] = (get.dtype.__get__(tensor), shape, strides)
            known = self._layouts.get(key)
            if known is None:
                known = self._new_strided(key, "cpu")
            layout, itemsize, extent = known
            if extent:
                stored = get.untyped_storage(tensor).nbytes()
                if stored < extent + get.storage_offset(tensor) * itemsize:
                    return Reading(layout, None, self._names.id("storage is freed"))
                address = get.data_ptr(tensor)
            else:
                address = 0
            signature = xorsig.fingerprint(address, shape, strides, itemsize, self._regions)
            return Reading(layout, signature, 0)
        key = (tensor.dtype, tensor.shape, tensor.stride(), tensor.device)
        known = self._layouts.get(key)
        if known is None:
            known = self._new_strided(key, str(tensor.device))
        if known[2] and tensor.untyped_storage().nbytes() == 0:
            return Reading(known[0], None, self._names.id("storage is freed"))
        return Reading(known[0], signature_bytes(tensor, self._regions), 0)

    def _new_strided(self, key: tuple[Any, ...], device: str) -> tuple[int, int, int]:
        dtype, shape, strides = key[:3]
        itemsize = dtype.itemsize
        numel = 1
        last = 0
        for size, stride in zip(shape, strides, strict=True):
            numel *= size
            last += (size - 1) * stride
        layout = self._writer.layout(
            str(dtype).removeprefix("torch."),
            tuple(shape),
            tuple(strides),
            device,
            "strided",
            numel * itemsize,
        )
        self._layouts[key] = entry = (layout, itemsize, (last + 1) * itemsize if numel else 0)
        return entry

    def _numpy(self, array: Any) -> Reading:
        dtype = array.dtype
        if dtype.hasobject:
            return self.describe(array, "numpy array of Python objects")
        if dtype.itemsize == 0:
            return self.describe(array, "numpy array of empty items")
        if any(stride < 0 or stride % dtype.itemsize for stride in array.strides):
            array = sys.modules["numpy"].ascontiguousarray(array)
        shape = tuple(array.shape)
        strides = tuple(stride // dtype.itemsize for stride in array.strides)
        layout = self._writer.layout(f"numpy.{dtype}", shape, strides, "cpu", "numpy", array.nbytes)
        address = array.__array_interface__["data"][0]
        signature = xorsig.fingerprint(address, shape, strides, dtype.itemsize, self._regions)
        return Reading(layout, signature, 0)


def _category_of(keys: set[str]) -> str:
    """The reason (or kind) of a tensor that is not plain memory, from its dispatch keys."""
    if any(key.startswith("FuncTorch") for key in keys):
        return "inside a functorch transform"
    if any(key.startswith("Functionalize") for key in keys):
        return "functional tensor"
    for prefix in ("Meta", "Sparse", "Quantized", "NestedTensor", "Mkldnn"):
        if any(key.startswith(prefix) for key in keys):
            return {
                "Meta": "meta tensor",
                "Sparse": "sparse",
                "Quantized": "quantized",
                "NestedTensor": "nested",
                "Mkldnn": "opaque mkldnn layout",
            }[prefix]
    return "no readable memory: " + ", ".join(sorted(keys))


def _inner_tensors(tensor: Any) -> tuple[str, list[tuple[str, torch.Tensor]]] | None:
    """The tensors that a wrapper subclass stands for.

    Returns:
        ``None`` for a subclass with memory of its own; else a reason why nothing can be read
        (empty when something can), and the inner tensors by attribute.
    """
    kind = type(tensor)
    dispatch = getattr(kind, "__torch_dispatch__", None)
    if dispatch is torch.Tensor.__torch_dispatch__:
        return None
    if kind.__name__ == "AsyncCollectiveTensor":
        # Reading would wait for the collective earlier than the program does.
        if not getattr(tensor, "completed", False):
            return "pending collective", []
        return "", [("elem", tensor.elem)]
    local = getattr(tensor, "_local_tensor", None)
    if isinstance(local, torch.Tensor):
        return "", [("local", local)]
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        attributes, _ = flatten()
        return "", [(name, getattr(tensor, name)) for name in attributes]
    return f"{kind.__name__} has no memory of its own", []


def _components(tensor: torch.Tensor, category: str) -> list[tuple[str, torch.Tensor]] | None:
    """The plain tensors that make up a sparse, quantised or nested tensor."""
    with torch.no_grad():
        if category == "sparse":
            return [(name, read(tensor)) for name, read in _SPARSE_PARTS[tensor.layout]]
        if category == "quantized":
            parts = [("", tensor.int_repr())]
            if tensor.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric):
                parts.append(("scales", tensor.q_per_channel_scales()))
                parts.append(("zero_points", tensor.q_per_channel_zero_points()))
            else:
                parts.append(("scale", torch.tensor(tensor.q_scale(), dtype=torch.float64)))
                parts.append(("zero_point", torch.tensor(tensor.q_zero_point())))
            return parts
        if category == "nested":
            parts = [(str(index), part) for index, part in enumerate(tensor.unbind())]
            return [*parts, ("sizes", tensor._nested_tensor_size())]
    return None
