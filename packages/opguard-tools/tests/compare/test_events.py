from __future__ import annotations

from capture_builders import Recording

from opguard.tools.compare.events import BaselineClock, CommonPrefix
from opguard.tools.compare.pairing import CallPair, Pairing
from opguard.tools.compare.records import NEVER_ENDED, Call, Side
from opguard.tools.compare.relations import RelationSource


def call(begin: int, end: int) -> Call:
    return Call(begin, 0, 0, 0, 0, 0, 0, "f", begin, end, None)


def pair(baseline: Call, candidate: Call, *, in_order: bool = True) -> CallPair:
    return CallPair(baseline, candidate, RelationSource.EXACT, "", in_order)


def test_candidate_ticks_lie_just_after_the_last_anchor() -> None:
    clock = BaselineClock([pair(call(10, 19), call(1, 4)), pair(call(20, 29), call(7, 9))])

    assert [clock.place(tick) for tick in (0, 1, 3, 4, 6, 7, 99)] == [
        0.5, 10.5, 10.5, 19.5, 19.5, 20.5, 29.5,
    ]  # fmt: skip


def test_calls_that_were_moved_are_no_anchors() -> None:
    clock = BaselineClock(
        [pair(call(10, 19), call(1, 4)), pair(call(50, 59), call(5, 6), in_order=False)]
    )

    assert clock.place(7) == 19.5


def prefix(*pairs: CallPair, baseline: bool = False, candidate: bool = False) -> CommonPrefix:
    return CommonPrefix.of(
        Pairing(list(pairs)), baseline_incomplete=baseline, candidate_incomplete=candidate
    )


def test_prefix_ends_with_the_end_of_the_last_pair() -> None:
    found = prefix(pair(call(1, 4), call(11, 14)), baseline=True)

    assert [found.covers(Side.CANDIDATE, tick) for tick in (14, 15)] == [True, False]
    assert found.covers(Side.BASELINE, 99)


def test_prefix_ends_with_the_begin_of_a_pair_that_was_cut() -> None:
    left = prefix(pair(call(1, NEVER_ENDED), call(11, 90)), baseline=True)
    right = prefix(pair(call(11, 90), call(1, NEVER_ENDED)), candidate=True)

    assert [left.covers(Side.CANDIDATE, tick) for tick in (11, 12)] == [True, False]
    assert [right.covers(Side.BASELINE, tick) for tick in (11, 12)] == [True, False]


def test_builder_ticks_are_strictly_increasing() -> None:
    run = Recording()
    with run.nest("a"):
        run.call("b", inputs={"x": "x"})

    calls = run.tables().calls
    assert calls.select("tick_begin", "tick_end").rows() == [(1, 5), (2, 4)]
