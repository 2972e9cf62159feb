"""What instrumented source calls: one function per rewritten form.

Instrumented files import these names before anything of their own, so this module imports nothing
but the standard library. While no recorder is installed every function hands back what it was
given, and the program runs the objects that it would have run without instrumentation.
"""

from __future__ import annotations

import operator  # instrumented files take it from here: a checkout may have an operator.py
import sys
from collections.abc import Iterator
from typing import Any, Protocol

_recorder: Recorder | None = None
_call_site: Any = None


class Recorder(Protocol):
    """What a recorder offers to the native call wrapper ``xorsig.CallSite``."""

    @property
    def full(self) -> bool:
        """Whether so many calls are recorded inside one another that no more may be."""

    def begin(
        self, index: int, callee: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> object | None:
        """A call is about to run; ``None`` leaves it unrecorded."""

    def finish(self, token: object, result: Any) -> None:
        """The call returned ``result``."""

    def fail(self, token: object, error: BaseException) -> None:
        """The call raised ``error``, which goes on to the caller."""


def install(recorder: Recorder | None) -> None:
    """Make ``recorder`` receive the calls of instrumented source; ``None`` ends that."""
    global _recorder, _call_site
    if recorder is not None and _call_site is None:
        import xorsig

        _call_site = xorsig.CallSite
    _recorder = recorder


def site(index: int, callee: Any) -> Any:
    """Stand in for ``callee`` at callsite ``index`` of the plan."""
    if _recorder is None or _recorder.full:
        return callee
    return _call_site(index, callee, _recorder)


class _Subscript:
    """``base[...]`` as a recorded load, store or deletion."""

    __slots__ = ("_base", "_index")

    def __init__(self, index: int, base: Any) -> None:
        self._index = index
        self._base = base

    def __getitem__(self, key: Any) -> Any:
        return site(self._index, operator.getitem)(self._base, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        site(self._index, operator.setitem)(self._base, key, value)

    def __delitem__(self, key: Any) -> None:
        site(self._index, operator.delitem)(self._base, key)


def subscript(index: int, base: Any) -> Any:
    """Stand in for ``base`` in ``base[...]``, which keeps the order of evaluation."""
    if _recorder is None or _recorder.full:
        return base
    return _Subscript(index, base)


def _unchanged(item: Any) -> Any:
    return item


def _iterate(index: int, iterable: Any, iterator: Iterator[Any]) -> Iterator[Any]:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(iterable, torch.Tensor):
        # The items are views of the tensor: each is its call's input as well, or a differing
        # tensor would look as if iterating over it had made the difference.
        for item in iterator:
            yield site(index, _unchanged)(item)
        return
    advance = site(index, iterator.__next__)
    while True:
        try:
            held = [advance()]
        except StopIteration:
            return
        # No name of this frame may keep the item alive while the loop's body runs.
        yield held.pop()


def iterate(index: int, iterable: Any) -> Any:
    """Stand in for the iterable of a ``for``; every item is recorded as one call."""
    if _recorder is None or _recorder.full:
        return iterable
    # Here and not in the generator: a loop asks for its iterator before it runs, and a generator
    # expression when it is made.
    return _iterate(index, iterable, site(index, iter)(iterable))


def frames() -> tuple[Any, ...]:
    """Functions of this module whose frames stand between those of the workload."""
    item = (_Subscript.__init__, _Subscript.__getitem__)
    changes = (_Subscript.__setitem__, _Subscript.__delitem__)
    return (site, subscript, iterate, _iterate, _unchanged, *item, *changes)
