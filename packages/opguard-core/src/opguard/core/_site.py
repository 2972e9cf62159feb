"""What instrumented source calls: one function per rewritten form.

Instrumented files import these names before anything of their own, so this module imports nothing
but the standard library. While no recorder is installed every function hands back what it was
given, and the program runs the objects that it would have run without instrumentation.
"""

from __future__ import annotations

import operator  # noqa: F401, instrumented files take it from here: a checkout may have one
import sys
from typing import Any, Protocol

_recorder: Recorder | None = None
_native: Any = None


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
    global _recorder, _native
    if recorder is not None and _native is None:
        import xorsig

        _native = xorsig
    _recorder = recorder


def site(index: int, callee: Any) -> Any:
    """Stand in for ``callee`` at callsite ``index`` of the plan."""
    if _recorder is None or _recorder.full:
        return callee
    return _native.CallSite(index, callee, _recorder)


def subscript(index: int, base: Any) -> Any:
    """Stand in for ``base`` in ``base[...]``, which keeps the order of evaluation."""
    if _recorder is None or _recorder.full:
        return base
    return _native.SubscriptSite(index, base, _recorder)


def _unchanged(item: Any) -> Any:
    return item


def iterate(index: int, iterable: Any) -> Any:
    """Stand in for the iterable of a ``for``; every item is recorded as one call."""
    recorder = _recorder
    if recorder is None or recorder.full:
        return iterable
    # A loop asks for its iterator before it runs, and a generator expression when it is made.
    iterator = site(index, iter)(iterable)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(iterable, torch.Tensor):
        # The items are views of the tensor: each is its call's input as well, or a differing
        # tensor would look as if iterating over it had made the difference.
        return _native.IterateSite(index, iterator, recorder, _unchanged)
    return _native.IterateSite(index, iterator, recorder)


def frames() -> tuple[Any, ...]:
    """Functions of this module whose frames stand between those of the workload."""
    return (site, subscript, iterate, _unchanged)
