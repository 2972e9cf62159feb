"""Instrumented source does what the original does, with a recorder and without, form by form."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from opguard_sites import all_sites
from source_forms import ENCODED, PROGRAMS, SINCE_312, SINCE_313

from opguard.core import _site
from opguard.tools.source import instrument

FORMS: dict[str, bytes] = {name: text.encode() for name, text in PROGRAMS.items()} | ENCODED
for version, programs in ((12, SINCE_312), (13, SINCE_313)):
    if sys.version_info >= (3, version):
        FORMS |= {name: text.encode() for name, text in programs.items()}

SPANNING_LINES = {"continuation lines"}
"""Forms in which an attribute stands on another line than its expression's first: the original's
frames name the attribute's line, the instrumented one's the first."""


class CountingRecorder:
    """Follows every call and keeps nothing but numbers."""

    full = False

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended = 0

    def begin(self, index: int, callee: Any, args: Any, kwargs: Any) -> int:
        self.begun.append(index)
        return index

    def finish(self, token: object, result: Any) -> None:
        self.ended += 1

    def fail(self, token: object, error: BaseException) -> None:
        self.ended += 1


class Trace:
    """What a program did: every operation on its values, in order, with the line that asked."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def event(self, *what: Any) -> None:
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != "form.py":
            frame = frame.f_back
        place = (frame.f_code.co_name, frame.f_lineno) if frame is not None else None
        self.events.append((*(repr(item) for item in what), place))

    def note(self, *values: Any) -> Any:
        self.event("note", *values)
        return values[0]

    def lines(self, error: BaseException) -> None:
        """The program's own frames in an exception's traceback."""
        found = traceback.extract_tb(error.__traceback__)
        self.event([(f.name, f.lineno) for f in found if f.filename == "form.py"])


class V:
    """A value; every operation on it is an event and gives another value."""

    def __init__(self, name: str, trace: Trace) -> None:
        vars(self).update(name=name, trace=trace)

    def __repr__(self) -> str:
        return self.name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._new(f".{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        self._new(f".{name}=", value)

    def __delattr__(self, name: str) -> None:
        self._new(f"del .{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> V:
        return self._new("()", *args, *kwargs.items())

    def __getitem__(self, key: Any) -> V:
        return self._new("[]", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._new("[]=", key, value)

    def __delitem__(self, key: Any) -> None:
        self._new("del []", key)

    def __iter__(self) -> Iterator[V]:
        self._new("iter")
        return iter([self._new("item")])

    def __contains__(self, item: Any) -> bool:
        self._new("in", item)
        return True

    def __bool__(self) -> bool:
        self._new("bool")
        return True

    def __format__(self, spec: str) -> str:
        self._new("format", spec)
        return self.name

    def __enter__(self) -> V:
        return self._new("enter")

    def __exit__(self, *error: Any) -> bool:
        self._new("exit")
        return False

    __hash__ = object.__hash__

    def _new(self, operation: str, *operands: Any) -> V:
        self.trace.event(self.name, operation, *operands)
        name = f"{self.name}{operation}"
        return V(name if len(name) < 30 else "…", self.trace)


_OPERATIONS = (
    "add sub mul matmul truediv floordiv mod pow and or xor lshift rshift radd rtruediv "
    "iadd isub imul imatmul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift "
    "lt le gt ge eq ne neg pos invert"
)
for _name in _OPERATIONS.split():
    setattr(V, f"__{_name}__", lambda self, *other, _name=_name: self._new(_name, *other))


def outcome(program: bytes, part: slice) -> list[tuple[Any, ...]]:
    """Run a program; an exception that it does not catch ends its events."""
    trace = Trace()
    values = {name: V(name, trace) for name in "abc"}
    code = compile(program, "form.py", "exec", dont_inherit=True)
    try:
        exec(code, {**values, "note": trace.note, "lines": trace.lines, "__name__": "form"})
    except Exception as error:
        trace.lines(error)
        trace.event(type(error), str(error))
    return [event[part] for event in trace.events]


@contextlib.contextmanager
def installed(recorder: Any) -> Iterator[None]:
    _site.install(recorder)
    try:
        yield
    finally:
        _site.install(None)


@pytest.mark.parametrize("name", FORMS)
def test_instrumented_form_does_what_the_original_does(name: str) -> None:
    content = FORMS[name]
    changed = instrument(content, all_sites(content))
    assert changed != content
    place = slice(-1) if name in SPANNING_LINES else slice(None)
    expected = outcome(content, place)
    assert not expected[-1][0].startswith("<class"), "the program itself is wrong"
    assert outcome(changed, place) == expected
    recorder = CountingRecorder()
    with installed(recorder):
        assert outcome(changed, place) == expected
    assert recorder.begun
    assert recorder.ended == len(recorder.begun)
