"""Stand-ins for what instrumented source subscripts and iterates over."""

from __future__ import annotations

import gc
import operator
import sys
import weakref
from typing import Any

import pytest

import xorsig


class Recorder:
    """Notes what begins, and how it ends."""

    def __init__(self, *, recording: bool = True) -> None:
        self.recording = recording
        self.events: list[tuple[Any, ...]] = []

    def begin(self, index: int, callee: Any, args: tuple[Any, ...], kwargs: Any) -> object | None:
        assert kwargs is None
        self.events.append((index, callee, *args))
        return self if self.recording else None

    def finish(self, token: object, result: Any) -> None:
        self.events.append(("returned", result))

    def fail(self, token: object, error: BaseException) -> None:
        self.events.append(("raised", type(error)))


class Caller:
    """A container that says which function uses it."""

    def __getitem__(self, key: Any) -> str:
        return sys._getframe(1).f_code.co_name

    def __setitem__(self, key: Any, value: list[str]) -> None:
        value.append(sys._getframe(1).f_code.co_name)

    def __delitem__(self, key: list[str]) -> None:
        key.append(sys._getframe(1).f_code.co_name)

    def __iter__(self) -> Caller:
        return self

    def __next__(self) -> str:
        return sys._getframe(1).f_code.co_name


def test_loads_stores_and_deletions_are_calls_of_operator() -> None:
    recorder, base = Recorder(), {"a": 1}
    site: Any = xorsig.SubscriptSite(5, base, recorder)
    assert site["a"] == 1
    site["b"] = 2
    del site["a"]
    assert base == {"b": 2}
    assert recorder.events == [
        (5, operator.getitem, base, "a"),
        ("returned", 1),
        (5, operator.setitem, base, "b", 2),
        ("returned", None),
        (5, operator.delitem, base, "a"),
        ("returned", None),
    ]


def test_error_of_a_subscript_passes_unchanged() -> None:
    recorder = Recorder()
    site: Any = xorsig.SubscriptSite(5, {}, recorder)
    with pytest.raises(KeyError, match="'a'") as caught:
        site["a"]
    assert caught.value.__context__ is None
    assert recorder.events[-1] == ("raised", KeyError)


@pytest.mark.parametrize("each", [None, lambda item: item])
def test_every_item_is_a_call_and_the_end_is_the_iterators(each: Any) -> None:
    recorder = Recorder()
    items = [3, 4]
    iterator = iter(items)
    assert list(xorsig.IterateSite(7, iterator, recorder, each)) == items
    began = [event for event in recorder.events if event[0] == 7]
    expected = [(7, each, 3), (7, each, 4)] if each else [(7, iterator.__next__)] * 3
    assert began == expected
    assert recorder.events[-1] == (("returned", 4) if each else ("raised", StopIteration))


@pytest.mark.parametrize("recording", [True, False])
def test_no_frame_of_its_own(recording: bool) -> None:
    recorder = Recorder(recording=recording)
    here = "test_no_frame_of_its_own"
    seen: list[str] = []
    site: Any = xorsig.SubscriptSite(0, Caller(), recorder)
    seen.append(site[0])
    site[0] = seen
    del site[seen]
    seen.append(next(xorsig.IterateSite(0, Caller(), recorder)))
    seen.append(next(xorsig.IterateSite(0, Caller(), recorder, lambda item: item)))
    assert seen == [here] * 5


def test_an_item_that_the_loop_lets_go_of_is_gone() -> None:
    class Item:
        pass

    for each in (None, lambda item: item):
        references = []
        recorder = Recorder(recording=False)
        iterator = (Item() for _ in range(2))
        for item in xorsig.IterateSite(0, iterator, recorder, each):
            references.append(weakref.ref(item))
            recorder.events.clear()
            del item
            assert references[-1]() is None


def test_cycles_through_the_stand_ins_are_collected() -> None:
    class Base(list[Any]):
        pass

    for make in (
        lambda base: xorsig.SubscriptSite(0, base, Recorder()),
        lambda base: xorsig.IterateSite(0, iter(base), Recorder()),
    ):
        base = Base()
        base.append(make(base))
        reference = weakref.ref(base)
        del base
        gc.collect()
        assert reference() is None
