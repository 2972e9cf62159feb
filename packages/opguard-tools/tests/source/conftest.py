"""Helpers for tests of source selection, alignment and rewriting."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest
from opguard_sites import all_sites

from opguard.tools.source.plan import Site


@pytest.fixture(name="all_sites")
def all_sites_fixture() -> Callable[..., list[Site]]:
    """``all_sites`` for tests."""
    return all_sites


class Recorder:
    """Stands in for the workload's recorder: hands everything through and notes the sites."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.module = ModuleType("opguard.core._site")
        wrappers = {"site": self.site, "subscript": self.subscript, "iterate": self.iterate}
        vars(self.module).update(wrappers, operator=operator)

    def site(self, number: int, callee: Any) -> Any:
        """A call or operator: the callee itself."""
        self.seen.append(number)
        return callee

    def subscript(self, number: int, base: Any) -> Any:
        """A subscript's base: an object that does the same with it."""
        self.seen.append(number)
        return _Base(base)

    def iterate(self, number: int, iterable: Any) -> Any:
        """A loop's iterable."""
        self.seen.append(number)
        return iterable


class _Base:
    def __init__(self, base: Any) -> None:
        self.base = base

    def __getitem__(self, index: Any) -> Any:
        return self.base[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.base[index] = value

    def __delitem__(self, index: Any) -> None:
        del self.base[index]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """A recorder that instrumented code of this test imports."""
    stand_in = Recorder()
    package = ModuleType("opguard.core")
    package.__path__ = []
    monkeypatch.setitem(sys.modules, "opguard.core", package)
    monkeypatch.setitem(sys.modules, "opguard.core._site", stand_in.module)
    return stand_in


class Tracked:
    """A value whose operations are noted, in order, with the place in the code that did them."""

    def __init__(self, name: str, log: list[tuple[str, tuple[Any, ...], str]]) -> None:
        vars(self).update(name=name, log=log)

    def _note(self, operation: str, *operands: Any) -> Tracked:
        frame = sys._getframe(2)
        positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
        text = f"{self.name}.{operation}({', '.join(map(repr, operands))})"
        self.log.append((text, positions, frame.f_code.co_qualname))
        return Tracked(text if len(text) < 40 else "…", self.log)

    def __repr__(self) -> str:
        return self.name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._note("get_" + name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._note("set_" + name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._note("call", *args, *kwargs.items())

    def __getitem__(self, index: Any) -> Any:
        return self._note("getitem", index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._note("setitem", index, value)

    def __delitem__(self, index: Any) -> None:
        self._note("delitem", index)

    def __iter__(self) -> Any:
        return iter([self._note("iter")])

    def __bool__(self) -> bool:
        self._note("bool")
        return True

    def __contains__(self, item: Any) -> bool:
        self._note("contains", item)
        return True

    __hash__ = object.__hash__


def _operation(name: str) -> Callable[..., Any]:
    def method(self: Tracked, *operands: Any) -> Any:
        return self._note(name, *operands)

    return method


_OPERATIONS = (
    "add sub mul matmul truediv floordiv mod pow and or xor lshift rshift "
    "radd rmul iadd isub imul imatmul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift "
    "lt le gt ge eq ne neg pos invert"
)
for _name in _OPERATIONS.split():
    setattr(Tracked, f"__{_name}__", _operation(_name))


@pytest.fixture
def tracked() -> Callable[[Sequence[str]], tuple[dict[str, Any], list[Any]]]:
    """Make tracked values by name, and the log that they share."""

    def make(names: Sequence[str]) -> tuple[dict[str, Any], list[Any]]:
        log: list[Any] = []
        return {name: Tracked(name, log) for name in names}, log

    return make
