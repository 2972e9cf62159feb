"""Whose exception is it: the tracer's, or that of a signal handler of the workload?"""

import functools
import signal

import pytest

from opguard.core import interruption
from opguard.core.interruption import comes_from_signal_handler
from opguard.core.recording.attributes import attribute


class TimeLimitError(Exception):
    pass


def handler(*_):
    raise TimeLimitError


class Handler:
    def __call__(self, *_):
        handler()


@pytest.fixture(params=[handler, functools.partial(handler), Handler()])
def raised_by_handler(request):
    before = signal.signal(signal.SIGUSR1, request.param)
    try:
        signal.raise_signal(signal.SIGUSR1)
    except TimeLimitError as error:
        yield error
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_a_handler_raises_is_the_workloads(raised_by_handler) -> None:
    assert comes_from_signal_handler(raised_by_handler)


def test_what_a_handler_raises_is_the_workloads_where_no_other_frame_lies_around_it(
    raised_by_handler,
) -> None:
    # As when a native function of the tracer lets signals be handled.
    assert comes_from_signal_handler(
        raised_by_handler.with_traceback(raised_by_handler.__traceback__.tb_next)
    )


def test_an_error_of_other_code_is_not_from_a_handler() -> None:
    with pytest.raises(ZeroDivisionError) as found:
        _ = 1 / 0
    assert not comes_from_signal_handler(found.value)


def test_an_error_of_the_tracers_own_code_asks_for_no_handler(monkeypatch) -> None:
    def asked(*_):
        raise AssertionError("the handlers were asked for")

    monkeypatch.setattr(interruption.signal, "getsignal", asked)
    assert attribute(len, "no_such_attribute") is None
