from __future__ import annotations

import os
import select
import signal

import pytest

from opguard.tools.launch.interruption import Interruption
from opguard.tools.protocol.errors import InterruptedOperationError


@pytest.mark.requirement("D5")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ending_signals_are_noted_and_raise_only_when_checked(number: signal.Signals) -> None:
    with Interruption() as interruption:
        interruption.check()
        os.kill(os.getpid(), number)

        assert interruption.received == [number]
        with pytest.raises(InterruptedOperationError) as caught:
            interruption.check()

    assert caught.value.details == {"signal": number.name}


def test_a_signal_wakes_a_select_until_drained() -> None:
    with Interruption() as interruption:
        assert select.select([interruption], [], [], 0)[0] == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert select.select([interruption], [], [], 0)[0] == [interruption]
        interruption.drain()
        assert select.select([interruption], [], [], 0)[0] == []


def test_previous_handlers_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interruption():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption() as interruption:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interruption.received == []
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_more_signals_than_the_pipe_holds_are_all_noted() -> None:
    with Interruption() as interruption:
        for _ in range(3):
            interruption._note(signal.SIGTERM, None)
        os.set_blocking(interruption._writer, False)
        try:
            while True:
                os.write(interruption._writer, b"x" * 4096)
        except BlockingIOError:
            pass
        interruption._note(signal.SIGTERM, None)
        assert len(interruption.received) == 4
