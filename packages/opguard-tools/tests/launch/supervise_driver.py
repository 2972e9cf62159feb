"""Runs one supervisor as the tests of ``supervise`` ask, and prints the outcome as JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path

from opguard.tools.launch import processes, supervise
from opguard.tools.launch.interruption import Interruption
from opguard.tools.launch.processes import Process
from opguard.tools.launch.progress import Progress
from opguard.tools.launch.supervise import Command, Supervisor
from opguard.tools.protocol.errors import OpGuardError


class CountingReporter:
    def __init__(self, folder: Path, interval: float) -> None:
        self.interval_seconds = interval
        self.folder = folder
        self.count = 0
        self.last_line = ""

    def heartbeat(self, elapsed_seconds: float, progress: Progress) -> None:
        if progress.last_line:
            self.count += 1
            self.last_line = progress.last_line
            (self.folder / "beaten").touch()

    def note(self, message: str) -> None:
        print(message, file=sys.stderr)


class DeadlineWhenReady:
    """A clock that passes the time limit once the program has written its ``ready`` file."""

    def __init__(self, ready: Path) -> None:
        self.ready = ready

    def __call__(self) -> float:
        far = 1_000_000 if self.ready.exists() and self.ready.read_text().endswith("\n") else 0
        return time.monotonic() + far


def survive(kill_all: Callable[..., list[Process]]) -> Callable[..., list[Process]]:
    """Kill as always, then claim that everything is still there."""

    def pretend(living: Callable[[], list[Process]]) -> list[Process]:
        before = living()
        kill_all(living)
        return before

    return pretend


def main() -> None:
    folder = Path(sys.argv[1])
    options = json.loads((folder / "options.json").read_text())
    supervise.LEFTOVER_SECONDS = options.get("leftover", supervise.LEFTOVER_SECONDS)
    if options.get("unkillable"):
        processes.kill_all = survive(processes.kill_all)
    bystander = None
    if options.get("bystander"):
        bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    interval = 3600.0
    if ready := options.get("timeout_after"):
        clock = DeadlineWhenReady(folder / ready)
        fake = types.SimpleNamespace(monotonic=clock, sleep=time.sleep)
        vars(supervise)["time"] = fake
        interval = 0.05  # each heartbeat looks at the clock
    reporter = CountingReporter(folder, options.get("interval", interval))
    result: dict[str, object]
    with Interruption() as interruption:
        if options.get("interrupt_first"):
            os.kill(os.getpid(), signal.SIGTERM)
        supervisor = Supervisor(
            Command(
                argv=options.get("argv", [sys.executable, "program.py"]),
                cwd=folder,
                env=dict(os.environ),
                output=folder,
            ),
            timeout_seconds=3600.0,
            grace=options.get("grace", 10.0),
            forwards=options.get("forwards", False),
            interruption=interruption,
            reporter=reporter,
        )
        try:
            outcome = supervisor.run()
            result = {
                "exit_status": outcome.exit_status,
                "ended_by": outcome.ended_by,
                "heartbeats": reporter.count,
                "last_line": reporter.last_line,
            }
        except OpGuardError as error:
            result = {"error": error.error_type}
            if "pids" in error.details:
                result["pids"] = error.details["pids"]
    if bystander is not None:
        result["bystander_alive"] = bystander.poll() is None
        bystander.kill()
        bystander.wait()
    print(json.dumps(result))


main()
