"""Ctrl-C, SIGTERM and SIGHUP at every step of a transaction."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from opguard.tools.transaction import Interrupted, interruptible
from opguard.tools.transaction.signals import SignalGuard

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def raised_by(signum: int) -> str:
    return "KeyboardInterrupt" if signum == signal.SIGINT else "Interrupted"


def guarded_operation(project: Any) -> Any:
    transaction = project.transaction()

    def operation() -> None:
        with interruptible(), transaction:
            pass

    return operation


@pytest.mark.requirement("D5")
@pytest.mark.parametrize("signum", SIGNALS)
def test_signal_at_every_step_is_delivered_after_everything_is_restored(
    project: Any, harness: Any, signum: int
) -> None:
    def check(number: int, ending: Any) -> None:
        assert ending.error == raised_by(signum), ending
        project.assert_pristine(number)

    harness.sweep(lambda: guarded_operation(project), lambda _: os.kill(os.getpid(), signum), check)


@pytest.mark.requirement("D5")
@pytest.mark.parametrize("first", SIGNALS)
def test_further_signals_at_every_later_step_do_not_break_the_restore(
    project: Any, harness: Any, first: int
) -> None:
    """From a point on, every system call is accompanied by another signal."""

    def count() -> int:
        faults = harness.Faults(lambda number, name: None, after=False)
        guarded_operation(project)()
        return int(faults.points)

    with project.transaction():
        pass  # so that the state folder exists in every run that is counted or signalled
    project.outputs += 1
    points = harness.in_child(count).value
    assert points > 80
    for start in range(0, points, 3):
        project.outputs += 1

        def child(start: int = start) -> None:
            def hook(point: int, _: str) -> None:
                if point >= start:
                    os.kill(os.getpid(), first if point == start else SIGNALS[point % 3])

            harness.Faults(hook, after=False)
            with interruptible(), project.transaction():
                pass

        ending = harness.in_child(child)

        assert ending.error in ("KeyboardInterrupt", "Interrupted"), (start, ending)
        project.assert_pristine(start)


@pytest.mark.requirement("D5")
@pytest.mark.parametrize("signum", SIGNALS)
def test_signal_at_the_instant_of_exit_does_not_skip_the_restore(
    project: Any, harness: Any, signum: int
) -> None:
    """The handler runs when ``__exit__`` has been entered and no statement of it has run.

    A C function called while an attribute is looked up sends the signal: the interpreter next looks
    at signals when it enters a Python function, which is ``__exit__``.
    """

    class Trigger:
        _as_parameter_ = int(signum)
        fire = property(getattr(ctypes.CDLL(None), "raise"))

    def child() -> None:
        trigger = Trigger()
        transaction = project.transaction()
        with interruptible(), transaction:
            trigger.fire  # noqa: B018 - the look-up is the point

    project.outputs += 1
    ending = harness.in_child(child)

    assert ending.error == raised_by(signum)
    project.assert_pristine()


@pytest.mark.requirement("D5")
@pytest.mark.parametrize("signum", SIGNALS)
def test_signal_in_the_body_raises_there_even_without_interruptible(
    project: Any, harness: Any, signum: int
) -> None:
    def child() -> list[str]:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        events = []
        try:
            with project.transaction():
                try:
                    os.kill(os.getpid(), signum)
                except BaseException as error:
                    events.append(type(error).__name__)
                    raise
        except (KeyboardInterrupt, Interrupted) as error:
            events.append(type(error).__name__)
        return events

    ending = harness.in_child(child)

    assert ending.value == [raised_by(signum)] * 2
    project.assert_pristine()


def test_second_signal_still_reaches_a_body_that_cleans_up_after_the_first(
    project: Any, harness: Any
) -> None:
    def child() -> list[int]:
        seen = []
        with project.transaction():
            for signum in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP):
                try:
                    os.kill(os.getpid(), signum)
                except Interrupted as error:
                    seen.append(int(error.signum))
        return seen

    assert harness.in_child(child).value == [signal.SIGTERM, signal.SIGTERM, signal.SIGHUP]


def test_ignored_signals_stay_ignored(project: Any, harness: Any) -> None:
    def child() -> list[Any]:
        for signum in SIGNALS:
            signal.signal(signum, signal.SIG_IGN)
        with interruptible(), project.transaction():
            for signum in SIGNALS:
                os.kill(os.getpid(), signum)
            return [signal.getsignal(signum) for signum in SIGNALS]

    assert harness.in_child(child).value == [signal.SIG_IGN] * 3
    project.assert_pristine()


def test_handler_that_only_takes_note_keeps_working_in_entry_body_and_exit(
    project: Any, harness: Any
) -> None:
    def child() -> tuple[list[str], bool]:
        notes: list[str] = []
        phase = "entry"
        signal.signal(signal.SIGTERM, lambda signum, frame: notes.append(phase))

        def hook(_: int, name: str) -> None:
            if name == "before link" or (name == "before exchange" and phase == "exit"):
                os.kill(os.getpid(), signal.SIGTERM)

        harness.Faults(hook)
        before = signal.getsignal(signal.SIGTERM)
        with project.transaction():
            phase = "body"
            os.kill(os.getpid(), signal.SIGTERM)
            phase = "exit"
        return notes, signal.getsignal(signal.SIGTERM) is before

    assert harness.in_child(child).value == (["entry", "body", "exit"], True)
    project.assert_pristine()


def test_handlers_are_put_back(project: Any) -> None:
    before = [signal.getsignal(signum) for signum in SIGNALS]

    with interruptible(), project.transaction():
        assert [signal.getsignal(signum) for signum in SIGNALS] != before

    assert [signal.getsignal(signum) for signum in SIGNALS] == before


def test_transaction_works_outside_the_main_thread(project: Any, harness: Any) -> None:
    contents = []

    def work() -> None:
        with interruptible(), project.transaction():
            contents.append(project.contents())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert contents == [harness.instrumented]
    project.assert_pristine()


def test_signals_held_back_are_all_delivered_although_the_first_one_raises(harness: Any) -> None:
    def child() -> list[str]:
        seen = []
        try:
            with interruptible(), SignalGuard(None):
                for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
                    os.kill(os.getpid(), signum)
        except BaseException as error:
            found: BaseException | None = error
            while found is not None:
                seen.append(type(found).__name__)
                found = found.__context__
        return seen

    assert harness.in_child(child).value == ["KeyboardInterrupt", "Interrupted"]


PROGRAM = """
import pathlib, sys
from opguard.tools.transaction import SourceTransaction, interruptible

checkout, output, new, digest = sys.argv[1:]
files, expected = {"model.py": new.encode()}, {"model.py": digest}
checkout, output = pathlib.Path(checkout), pathlib.Path(output)
with interruptible(), SourceTransaction(checkout, output, files, expected):
    print("instrumented", flush=True)
    sys.stdin.read()
"""


@pytest.mark.requirement("D5")
@pytest.mark.parametrize("signum", SIGNALS)
def test_signal_from_another_process_restores_the_checkout(
    project: Any, harness: Any, signum: int, tmp_path: Path
) -> None:
    arguments = [str(project.checkout), str(tmp_path / "out"), "new", harness.expected["model.py"]]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"instrumented\n"
        assert project.contents()["model.py"] == b"new"
        process.send_signal(signum)
        _, stderr = process.communicate()

    assert raised_by(signum).encode() in stderr.splitlines()[-1]
    project.assert_pristine()
