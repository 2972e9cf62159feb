"""How runs ended: in words, and whether both ended for the same reason."""

from __future__ import annotations

import pytest
from capture_builders import Recording, align_by_callee, view

from opguard.tools.compare import compare_captures
from opguard.tools.compare.endings import EndKind, RankEnding, alike, interrupted_ranks

OVERFLOW = {"type": "FloatingPointError", "message": "overflow", "file": "a.py", "line": 3}
PEER = {"type": "RuntimeError", "message": "connection closed", "file": None, "line": None}


def raised(rank: int, exception: dict[str, object], when: int = 1) -> RankEnding:
    return RankEnding(rank, EndKind.EXCEPTION, 1, exception, ended_unix_ns=when)


@pytest.mark.parametrize(
    ("ending", "text", "succeeded"),
    [
        (RankEnding(0, EndKind.RETURNED, 0), "returned", True),
        (RankEnding(0, EndKind.SYSTEM_EXIT, 0), "exited with status 0", True),
        (RankEnding(0, EndKind.OS_EXIT, 0), "left through os._exit with status 0", True),
        (RankEnding(0, EndKind.SYSTEM_EXIT, 3), "exited with status 3", False),
        (RankEnding(0, EndKind.OS_EXIT, 3), "left through os._exit with status 3", False),
        (raised(0, OVERFLOW), "raised FloatingPointError: overflow (a.py:3)", False),
        (raised(0, PEER), "raised RuntimeError: connection closed", False),
        (RankEnding(0, EndKind.NO_RECEIPT, -9), "was ended by SIGKILL", False),
        (
            RankEnding(0, EndKind.NO_RECEIPT),
            "left no receipt: it was killed, or crashed in native code",
            False,
        ),
        (RankEnding(0, EndKind.NOT_STARTED), "recorded nothing", False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_end_is_said_in_words(ending: RankEnding, text: str, succeeded: bool) -> None:
    assert (ending.describe(), ending.succeeded) == (text, succeeded)


def test_a_whole_run_has_no_reason_and_a_truncated_one_has() -> None:
    assert RankEnding(0, EndKind.RETURNED, 0).reason() is None
    assert RankEnding(0, EndKind.RETURNED, 0, truncated="batch 3 is damaged").reason() == (
        "batch 3 is damaged"
    )
    assert RankEnding(0, EndKind.OS_EXIT, 3, truncated="1 of 2 batches are there").reason() == (
        "the rank left through os._exit with status 3; 1 of 2 batches are there"
    )


def test_runs_that_succeeded_ended_alike() -> None:
    assert alike([RankEnding(0, EndKind.RETURNED, 0)], [RankEnding(0, EndKind.SYSTEM_EXIT, 0)])
    assert alike([], [RankEnding(0, EndKind.RETURNED, 0)])


@pytest.mark.parametrize(
    "other",
    [
        RankEnding(0, EndKind.RETURNED, 0),
        RankEnding(0, EndKind.EXCEPTION, 1, PEER, ended_unix_ns=1),
        RankEnding(0, EndKind.SYSTEM_EXIT, 1, ended_unix_ns=1),
        RankEnding(1, EndKind.EXCEPTION, 1, OVERFLOW, ended_unix_ns=1),
    ],
    ids=["success", "another exception", "an exit status", "another rank"],
)
def test_another_cause_is_another_end(other: RankEnding) -> None:
    assert not alike([raised(0, OVERFLOW)], [other])


def test_the_message_and_place_of_an_exception_may_vary() -> None:
    moved = OVERFLOW | {"message": "overflow at 0x7f", "line": 9}

    assert alike([raised(0, OVERFLOW)], [raised(0, moved, when=7)])


@pytest.mark.parametrize(
    "consequence",
    [
        raised(0, PEER, when=9),
        RankEnding(0, EndKind.SYSTEM_EXIT, 143, ended_unix_ns=2),
        RankEnding(0, EndKind.NO_RECEIPT),
    ],
    ids=["peer error", "SIGTERM handled", "SIGTERM not handled"],
)
def test_ranks_that_end_because_of_another_one_do_not_count(consequence: RankEnding) -> None:
    cause = raised(1, OVERFLOW, when=5)

    assert alike([raised(0, PEER, when=6), cause], [consequence, cause])


def test_a_rank_that_another_one_ended_is_interrupted() -> None:
    cause, peer = raised(1, OVERFLOW, when=5), raised(0, PEER, when=6)

    assert interrupted_ranks([peer, cause, RankEnding(2, EndKind.RETURNED, 0)]) == {0}
    assert interrupted_ranks([raised(0, OVERFLOW)]) == set()


@pytest.mark.requirement("B13")
@pytest.mark.parametrize(("interrupted", "origins"), [(True, 0), (False, 1)])
def test_where_an_interrupted_rank_was_hit_is_no_difference(
    interrupted: bool, origins: int
) -> None:
    """One run of rank 0 waited in the collective, the other one was hit before it."""

    def run(error: str, *, waits: bool) -> Recording:
        made = Recording()
        with made.nest("main", error=error):
            made.call("forward", outputs={"out": "f"})
            if waits:
                made.call("backward", error=error)
        return made

    def side(made: Recording, exception: dict[str, object]) -> object:
        other = Recording(sites=made.sites)
        other.call("main")
        cause = raised(1, OVERFLOW, when=1 if interrupted else 9)
        return view(made, other, endings={0: raised(0, exception, when=5), 1: cause})

    left = side(run("RuntimeError", waits=True), PEER)
    right = side(run("Preempted", waits=False), PEER | {"type": "Preempted"})

    found = compare_captures(left, right, align_by_callee(left, right), [0])

    assert len(found.ranks[0].origins) == origins
