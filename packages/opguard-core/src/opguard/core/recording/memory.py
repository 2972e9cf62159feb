"""Memory that was allocated and not written yet, which says nothing about the program."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_MANY = 64


class _Extent(NamedTuple):
    """Bytes of a storage: where a tensor begins and ends, and whether it fills all between."""

    storage: int
    begin: int
    end: int
    dense: bool


class _Block:
    """An allocation, and which ranges of it have been written, in ascending order.

    The weak reference keeps the address of the storage from being used again.
    """

    __slots__ = ("reference", "size", "written")

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        self.size = storage.nbytes()
        self.written: list[tuple[int, int]] = []


class UnwrittenMemory:
    """Keeps track of what allocating operators returned, until it has been written.

    Uninitialised bytes differ between equal runs. A view of them, or a buffer of which one part
    is filled, must not be fingerprinted: gradient buckets are made and sliced long before anything
    is copied into them.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}

    def allocated(self, tensor: Any) -> None:
        """Note a tensor whose memory holds arbitrary bytes."""
        extent = _extent(tensor)
        if extent is None:
            return
        if len(self._blocks) >= _MANY:
            self._blocks = {
                key: block
                for key, block in self._blocks.items()
                if not block.reference.expired()  # type: ignore[no-untyped-call]
            }
        self._blocks[extent.storage] = _Block(tensor.untyped_storage())

    def written(self, tensor: Any) -> None:
        """Note that every element of a tensor was written."""
        extent = _extent(tensor) if self._blocks else None
        block = self._blocks.get(extent.storage) if extent is not None else None
        if extent is None or block is None or not extent.dense:
            return
        merged: list[tuple[int, int]] = []
        for begin, end in sorted([*block.written, (extent.begin, extent.end)]):
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        block.written = merged
        if merged[0] == (0, block.size):
            del self._blocks[extent.storage]

    def touches(self, tensor: Any) -> bool:
        """Whether a tensor has bytes that nothing has written."""
        extent = _extent(tensor) if self._blocks else None
        block = self._blocks.get(extent.storage) if extent is not None else None
        if extent is None or block is None:
            return False
        return not any(begin <= extent.begin and extent.end <= end for begin, end in block.written)


def _extent(tensor: Any) -> _Extent | None:
    """Where a tensor lies; None for one without plain memory."""
    try:
        if tensor.layout is not torch.strided or not tensor.numel():
            return None
        storage = tensor.untyped_storage()
        size = tensor.element_size()
        begin = tensor.storage_offset() * size
        last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        end = begin + (last + 1) * size
        return _Extent(storage._cdata, begin, end, tensor.numel() == last + 1)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return None
