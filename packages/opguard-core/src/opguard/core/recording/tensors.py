"""Reading tensors: which bytes a tensor stands for, and their fingerprint, without changing it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch

import xorsig
from opguard.core.cuda.device import CudaDevice
from opguard.core.cuda.results import Device, Results
from opguard.core.fingerprint import signature_bytes
from opguard.core.interruption import comes_from_signal_handler
from opguard.core.recording.kinds import category_of, components_of, inner_tensors, resolved
from opguard.core.recording.names import Names

if TYPE_CHECKING:
    from xorsig import CaptureWriter


Signature: TypeAlias = bytes | xorsig.PendingSignature | None
"""Both schemes of a tensor; ``None`` where it could not be read."""


class Reading(NamedTuple):
    """A tensor as recorded: what it is, and what its bytes are.

    Attributes:
        layout: Interned id of dtype, shape, strides, device and kind.
        signature: ``8 * regions`` bytes, both schemes; something to come while a device computes
            them; ``None`` when the bytes cannot be read.
        note: Interned id of the reason when ``signature`` is ``None``, else 0.
    """

    layout: int
    signature: Signature
    note: int


class TensorReader:
    """Fingerprints tensors for one capture.

    Every method expects torch's function overrides and dispatch modes to be disabled by the
    caller, so that a workload's own modes and subclasses do not see the tracer's reads.

    Args:
        writer: Receives layouts, and fingerprints that come later.
        names: Interned texts.
        regions: Regions per fingerprint.
        device: Where fingerprints are launched and not waited for; CUDA by default.

    Attributes:
        results: The fingerprints that are on their way.
    """

    def __init__(
        self,
        writer: CaptureWriter,
        names: Names,
        regions: int,
        device: Device | None = None,
    ) -> None:
        self._device: Device = CudaDevice() if device is None else device
        self.results = Results(self._device, writer, 8 * regions)
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

    def close(self) -> list[str]:
        """Wait for the fingerprints that are on their way.

        Returns:
            What a reader of the capture should know about them.
        """
        results = self.results
        results.close()
        notes = []
        if results.waits:
            notes.append(f"waited {results.waits} times for a device with too many on their way")
        if results.failure is not None:
            notes.append(f"{type(results.failure).__name__}: {results.failure}"[:300])
        return notes

    def is_plain_cpu(self, tensor: torch.Tensor) -> bool:
        """Whether tensors with the dispatch keys of this one are plain memory of the host."""
        plain = self._category(tensor) == "plain" and tensor.is_cpu
        return plain and not self._device.holds(tensor)

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
                if isinstance(tensor, sys.modules["numpy"].ma.MaskedArray):
                    mask = sys.modules["numpy"].ma.getmaskarray(tensor)
                    yield f"{slot}.mask", self._numpy(mask)
                return
            if kind is torch.Tensor or kind is torch.nn.Parameter:
                category = self._category(tensor)
                if category == "plain":
                    yield slot, self._strided(tensor)
                    return
            elif depth > 4:
                category = "wrapper nested too deeply"
            else:
                inner = inner_tensors(tensor)
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
                    yield slot, self._strided(resolved(tensor))
                return
            components = components_of(tensor, category)
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
            category = self._keysets[raw] = category_of(keyset)
        return category

    def _strided(self, tensor: torch.Tensor) -> Reading:
        get: Any = torch.Tensor
        if tensor.is_cpu and not self._device.holds(tensor):
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
        if not self._device.holds(tensor):
            return Reading(known[0], signature_bytes(tensor, self._regions), 0)
        if self._device.capturing(tensor):
            return Reading(known[0], None, self._names.id("inside a CUDA graph capture"))
        return Reading(known[0], self.results.fingerprint(tensor), 0)

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


def in_functorch(tensor: torch.Tensor) -> bool:
    """Whether a tensor belongs to a functorch transform."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))
