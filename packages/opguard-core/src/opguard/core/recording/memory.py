"""Memory that was allocated and not written yet, which says nothing about the program."""

from __future__ import annotations

import functools
from collections.abc import Callable
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

    def __init__(self, storage: torch.UntypedStorage, written: list[tuple[int, int]]) -> None:
        self.reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        self.size = storage.nbytes()
        self.written = written


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
        if _extent(tensor) is not None:
            self._note(tensor.untyped_storage(), [])

    def resized(self, storage: torch.UntypedStorage, before: int) -> None:
        """Note a storage that had ``before`` bytes: it keeps those that it still has room for."""
        block = self._blocks.get(storage._cdata)
        if block is None and storage.nbytes() <= before:
            return
        kept = [(0, before)] if block is None else block.written
        kept = [(begin, min(end, storage.nbytes())) for begin, end in kept]
        self._note(storage, [(begin, end) for begin, end in kept if begin < end])

    def _note(self, storage: torch.UntypedStorage, written: list[tuple[int, int]]) -> None:
        if len(self._blocks) >= _MANY:
            self._blocks = {
                key: block
                for key, block in self._blocks.items()
                if not block.reference.expired()  # type: ignore[no-untyped-call]
            }
        self._blocks[storage._cdata] = _Block(storage, written)

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


class StorageResizes:
    """Tells of storages that change their size, until it is closed.

    Sharded training frees the memory of gathered parameters and takes it again, of which no
    operator tells.

    Args:
        resized: Receives the storage and how many bytes it had.
    """

    def __init__(self, resized: Callable[[torch.UntypedStorage, int], None]) -> None:
        original = torch.UntypedStorage.resize_
        self._before = vars(torch.UntypedStorage).get("resize_")

        @functools.wraps(original)
        def resize_(storage: torch.UntypedStorage, *size: Any) -> Any:
            before = storage.nbytes()
            result = original(storage, *size)
            resized(storage, before)
            return result

        self._replacement = resize_
        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign, assignment]

    def close(self) -> None:
        """Put torch's method back, unless something else has replaced it since."""
        if vars(torch.UntypedStorage).get("resize_") is not self._replacement:
            return
        if self._before is None:  # torch's is of the base class
            del torch.UntypedStorage.resize_
        else:
            torch.UntypedStorage.resize_ = self._before  # type: ignore[method-assign]


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
