"""The callable that stands in for a callee."""

from __future__ import annotations

import gc
import sys
import traceback
import weakref
from typing import Any

import pytest

import xorsig


class Recorder:
    """Keeps what it is told; records nothing for callees in ``skip``."""

    def __init__(self, *skip: Any) -> None:
        self.skip = skip
        self.events: list[tuple[Any, ...]] = []

    def begin(self, index: int, callee: Any, args: Any, kwargs: Any) -> Any:
        self.events.append(("begin", index, callee, args, kwargs))
        return None if callee in self.skip else len(self.events)

    def finish(self, token: Any, result: Any) -> None:
        self.events.append(("finish", token, result))

    def fail(self, token: Any, error: BaseException) -> None:
        self.events.append(("fail", token, error))


def add(a: int, b: int = 0) -> int:
    return a + b


def test_recorder_sees_arguments_and_result() -> None:
    recorder = Recorder()
    assert xorsig.CallSite(17, add, recorder)(1, b=2) == 3
    assert xorsig.CallSite(18, add, recorder)(4) == 4
    assert recorder.events == [
        ("begin", 17, add, (1,), {"b": 2}),
        ("finish", 1, 3),
        ("begin", 18, add, (4,), None),
        ("finish", 3, 4),
    ]


def test_call_without_token_is_not_reported_further() -> None:
    recorder = Recorder(add)
    assert xorsig.CallSite(0, add, recorder)(1, 2) == 3
    assert recorder.events == [("begin", 0, add, (1, 2), None)]


@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt, StopIteration, GeneratorExit])
def test_callee_exception_passes_unchanged(kind: type[BaseException]) -> None:
    error = kind("x")

    def fail() -> None:
        raise error

    recorder = Recorder()
    for call in (fail, xorsig.CallSite(0, fail, recorder)):
        with pytest.raises(kind) as caught:
            call()
        assert caught.value is error
        names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        assert names == ["test_callee_exception_passes_unchanged", "fail"]
        assert (error.__context__, error.__cause__) == (None, None)
        error = error.with_traceback(None)
    assert recorder.events[1:] == [("fail", 1, error)]


def test_recorder_failure_keeps_the_callee_exception_as_context() -> None:
    class Broken(Recorder):
        def fail(self, token: Any, error: BaseException) -> None:
            raise RuntimeError("recorder")

    def fail() -> None:
        raise KeyError("callee")

    with pytest.raises(RuntimeError, match="recorder") as caught:
        xorsig.CallSite(0, fail, Broken())()
    assert isinstance(caught.value.__context__, KeyError)


@pytest.mark.parametrize("method", ["begin", "finish"])
def test_recorder_failure_reaches_the_caller(method: str) -> None:
    class Broken(Recorder):
        pass

    def fail(*_: Any) -> None:
        raise RuntimeError(method)

    setattr(Broken, method, fail)
    with pytest.raises(RuntimeError, match=method):
        xorsig.CallSite(0, add, Broken())(1)


def test_no_frame_of_its_own() -> None:
    def caller() -> str:
        return sys._getframe(1).f_code.co_name

    assert xorsig.CallSite(0, caller, Recorder())() == "test_no_frame_of_its_own"


def test_attributes_and_repr() -> None:
    recorder = Recorder()
    site = xorsig.CallSite(17, add, recorder)
    assert (site.index, site.callee, site.recorder) == (17, add, recorder)
    assert repr(site) == f"CallSite(17, {add!r})"


def test_cycle_through_a_site_is_collected() -> None:
    class Owner:
        site: Any

        def method(self) -> None: ...

    owner = Owner()
    owner.site = xorsig.CallSite(0, owner.method, Recorder())
    reference = weakref.ref(owner)
    del owner
    gc.collect()
    assert reference() is None
