"""Run a launcher to its end, and leave no process of the workload behind.

The launcher gets a session of its own, no input, and one log for everything that it and its
descendants print. It is ended at the time limit or when this program is told to stop, in the order
SIGTERM, a grace, SIGKILL, until no descendant is left.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from opguard.tools.formats import LOG_NAME
from opguard.tools.launch import processes
from opguard.tools.launch.errors import LauncherFailedError, ProcessesLeftError
from opguard.tools.launch.interruption import Interruption
from opguard.tools.launch.processes import Process
from opguard.tools.launch.progress import Reporter, quote_log, read_progress

PLAIN_GRACE_SECONDS = 10.0
"""Grace of a plain interpreter between SIGTERM and SIGKILL."""

LAUNCHER_GRACE_SECONDS = 45.0
"""Grace of anything else: torchrun itself waits 30 s for its ranks before it kills them."""

LEFTOVER_SECONDS = 5.0
"""How long descendants may outlive a launcher that ended by itself."""

_INTERPRETER = re.compile(r"(python|pypy)[0-9.]*t?(\.exe)?")


@dataclass(frozen=True)
class Command:
    """What to start.

    Attributes:
        argv: Program and arguments; no shell sees them.
        cwd: Working directory.
        env: The complete environment.
        output: The operation's output directory; the log goes to ``workload.log`` in it.
    """

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    output: Path

    @property
    def log(self) -> Path:
        """File that receives stdout and stderr of the launcher and all its descendants."""
        return self.output / LOG_NAME


@dataclass(frozen=True)
class Outcome:
    """How the launcher ended.

    Attributes:
        exit_status: Its exit status; minus the signal's number if a signal ended it.
        elapsed_seconds: From its start until no descendant was left.
        ended_by: Why it was ended from here; None if it ended by itself.
    """

    exit_status: int
    elapsed_seconds: float
    ended_by: Literal["timeout", "interruption"] | None


def forwards_signals(launcher: Sequence[str]) -> bool:
    """Whether a launcher is known to end its own ranks on SIGTERM (torchrun and its module)."""
    names = {Path(part).name for part in launcher}
    return bool(names & {"torchrun", "torch.distributed.run", "torch.distributed.launch"})


def grace_seconds(launcher: Sequence[str]) -> float:
    """Seconds between SIGTERM and SIGKILL that suit a launcher.

    Source:
        Protocol requirement B8.
    """
    plain = _INTERPRETER.fullmatch(Path(launcher[0]).name) and not forwards_signals(launcher)
    return PLAIN_GRACE_SECONDS if plain else LAUNCHER_GRACE_SECONDS


class Supervisor:
    """Runs one command; used once."""

    def __init__(
        self,
        command: Command,
        *,
        timeout_seconds: float,
        grace: float,
        forwards: bool,
        interruption: Interruption,
        reporter: Reporter,
    ) -> None:
        """Keep the rules of the run.

        Args:
            command: What to start.
            timeout_seconds: Time limit of the run.
            grace: Seconds between SIGTERM and SIGKILL.
            forwards: The launcher passes SIGTERM on; its ranks then get it from it, once.
            interruption: Active, notes signals to this program.
            reporter: Told about progress.
        """
        self._command = command
        self._timeout_seconds = timeout_seconds
        self._grace = grace
        self._forwards = forwards
        self._interruption = interruption
        self._reporter = reporter
        self._exit_status: int | None = None
        self._before: set[int] = set()

    def run(self) -> Outcome:
        """Start the command and wait until nothing of it is left.

        Raises:
            LauncherFailedError: It could not be started.
            ProcessesLeftError: A process survived SIGKILL.
            InterruptedOperationError: A signal arrived before the start.

        Source:
            Protocol requirements B2, B8.
        """
        self._interruption.check()
        if not processes.become_subreaper():
            raise LauncherFailedError(
                "a workload can be run on Linux only: this system cannot find orphaned ranks, "
                "which might outlive the operation; run `discover` and `trace` on Linux"
            )
        self._before = {process.pid for process in processes.descendants(os.getpid())}
        started = time.monotonic()
        launcher = self._start()
        ended_by: Literal["timeout", "interruption"] | None = None
        try:
            ended_by = self._wait(launcher, started)
            if ended_by is None:
                self._await_leftovers(launcher)
        finally:
            # Also on an unexpected exception: a workload must not run on without its supervisor.
            self._end_all(launcher, self._grace if self._exit_status is None else LEFTOVER_SECONDS)
        assert self._exit_status is not None
        return Outcome(self._exit_status, time.monotonic() - started, ended_by)

    def _start(self) -> subprocess.Popen[bytes]:
        command = self._command
        try:
            with command.log.open("ab") as log:
                return subprocess.Popen(
                    list(command.argv),
                    cwd=command.cwd,
                    env=dict(command.env),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise LauncherFailedError(
                f"workload.launcher: {command.argv[0]} cannot be started: {error.strerror}; it "
                "must be a program that runs a Python entry point",
                launcher=command.argv[0],
            ) from error

    def _wait(
        self, launcher: subprocess.Popen[bytes], started: float
    ) -> Literal["timeout", "interruption"] | None:
        deadline = started + self._timeout_seconds
        heartbeat = started + self._reporter.interval_seconds
        handle = os.pidfd_open(launcher.pid)
        try:
            while self._poll(launcher) is None:
                now = time.monotonic()
                if self._interruption.received:
                    self._reporter.note(f"{self._interruption.received[0].name}: ending the run")
                    return "interruption"
                if now >= deadline:
                    self._reporter.note(f"time limit of {self._timeout_seconds:g} s: ending it")
                    return "timeout"
                if now >= heartbeat:
                    self._reporter.heartbeat(now - started, read_progress(self._command.output))
                    heartbeat = now + self._reporter.interval_seconds
                self._alive(launcher)
                pause = max(0.0, min(deadline, heartbeat) - time.monotonic())
                select.select([handle, self._interruption.fileno()], [], [], pause)
        finally:
            os.close(handle)
        return None

    def _poll(self, launcher: subprocess.Popen[bytes]) -> int | None:
        status = launcher.poll()
        if status is not None:
            self._exit_status = status
        return status

    def _await_leftovers(self, launcher: subprocess.Popen[bytes]) -> None:
        """Give descendants that outlive the launcher a moment to end by themselves."""
        deadline = time.monotonic() + LEFTOVER_SECONDS
        while (
            self._alive(launcher)
            and time.monotonic() < deadline
            and not self._interruption.received
        ):
            time.sleep(processes.POLL_SECONDS)

    def _end_all(self, launcher: subprocess.Popen[bytes], grace: float) -> None:
        """Terminate what is left: SIGTERM, the grace, SIGKILL until nothing is left."""
        seen = len(self._interruption.received)
        self._interruption.drain()
        told: set[tuple[int, int]] = set()
        deadline = time.monotonic() + grace
        while alive := self._alive(launcher):
            if time.monotonic() >= deadline or len(self._interruption.received) > seen:
                break  # a second signal means: do not wait
            for process in alive:
                identity = (process.pid, process.start_ticks)
                if identity not in told and self._should_tell(process, launcher):
                    told.add(identity)
                    processes.send(process, signal.SIGTERM)
            time.sleep(processes.POLL_SECONDS)
        if left := processes.kill_all(lambda: self._alive(launcher)):
            numbers = ", ".join(str(process.pid) for process in left)
            raise ProcessesLeftError(
                f"processes {numbers} of the workload survived SIGKILL, probably stuck in the "
                "kernel; the checkout is put back, end them by hand before the next run"
                + quote_log(self._command.log),
                pids=[process.pid for process in left],
            )
        # It has ended, perhaps between the last look at its status and the last look around.
        self._exit_status = launcher.wait()

    def _should_tell(self, process: Process, launcher: subprocess.Popen[bytes]) -> bool:
        """Whether SIGTERM goes to a process from here.

        Ranks below a launcher that forwards it would get it twice, and a handler that raises would
        interrupt its own clean-up; they are told once that launcher is gone.
        """
        return not self._forwards or self._exit_status is not None or process.group == launcher.pid

    def _alive(self, launcher: subprocess.Popen[bytes]) -> list[Process]:
        """Descendants of this run that have not ended; reaps those that have."""
        self._poll(launcher)
        return processes.living_descendants(self._before, launcher.pid)
