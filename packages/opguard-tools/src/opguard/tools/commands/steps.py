"""One backend operation as a process of its own, with everything it said kept in a folder."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from opguard.tools.commands.display import Display
from opguard.tools.commands.errors import StepEndedError, StepFailedError
from opguard.tools.formats import INCOMPLETE_NAME
from opguard.tools.launch import processes
from opguard.tools.launch.interruption import Interruption
from opguard.tools.launch.judge import describe_status
from opguard.tools.launch.progress import quote_log, read_progress
from opguard.tools.protocol.errors import InterruptedOperationError
from opguard.tools.protocol.models import ActionRequest, ClosedModel
from opguard.tools.protocol.reading import read_json_object, validate

Result = TypeVar("Result", bound=ClosedModel)


@dataclass(frozen=True)
class StepRunner:
    """Runs actions of the protocol, one after another.

    Attributes:
        folder: Each step gets a folder in it with ``request.json``, ``result.json`` (what the
            action printed) and ``stderr.log``.
        display: Shows progress.
        interruption: Active; a signal is passed on to the running step.
    """

    folder: Path
    display: Display
    interruption: Interruption

    def run(self, name: str, action: str, request: ActionRequest, result: type[Result]) -> Result:
        """Run one action in a fresh process.

        Args:
            name: Name of the step's folder.
            action: The protocol's action.
            request: Its request.
            result: The model of its result.

        Returns:
            What the action printed. Where its workload ended by itself without success, what the
            action left in ``incomplete.json``.

        Raises:
            StepFailedError: The action reported an error and left nothing to go on with.
            StepEndedError: The process ended without a document.
            InterruptedOperationError: A signal arrived; the step has ended and cleaned up.

        Source:
            Protocol requirements A7, A10.
        """
        self.interruption.check()
        processes.become_subreaper()
        folder = self.folder / name
        folder.mkdir(parents=True)
        request_path = folder / "request.json"
        request_path.write_text(request.model_dump_json(indent=1) + "\n", "utf-8")
        self.display.start(name.replace("-", ": ", 1))
        outcome = "failed"
        try:
            status = self._execute(folder, action, request_path, Path(request.output))
            if self.interruption.received:
                self._raise_interruption(name, folder)
            parsed = self._parse(name, folder, status, request, result)
            ending = getattr(parsed, "ending", None)
            outcome = "done" if ending is None else "ended without success"
        finally:
            self.display.finish("interrupted" if self.interruption.received else outcome)
        if ending is not None:
            self.display.note(ending.message)
        return parsed

    def _raise_interruption(self, name: str, folder: Path) -> NoReturn:
        """After a signal: a source file that could not be put back matters more than the signal."""
        try:
            error = json.loads((folder / "result.json").read_bytes())["error"]
        except (ValueError, KeyError, TypeError):
            error = {"type": InterruptedOperationError.error_type}
        if error["type"] != InterruptedOperationError.error_type:
            raise StepFailedError(name, error["type"], error["message"])
        number = self.interruption.received[0].name
        raise InterruptedOperationError(
            f"{number} during {name}: nothing of the workload is left running and the checkouts "
            f"have their original sources. What was captured stays in {self.folder.parent}; start "
            "again with a new output directory",
            signal=number,
        )

    def _execute(self, folder: Path, action: str, request: Path, output: Path) -> int:
        # -P: the caller's working directory may hold a json.py of its own.
        argv = [sys.executable, "-P", "-m", "opguard.tools", action, "--request", str(request)]
        with (folder / "result.json").open("wb") as out, (folder / "stderr.log").open("wb") as err:
            # A process group of its own: Ctrl-C of the terminal reaches this program only, which
            # passes it on exactly once.
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, process_group=0
            )
        return self._wait(process, output)

    def _wait(self, process: subprocess.Popen[bytes], output: Path) -> int:
        forwarded = 0
        handle = os.pidfd_open(process.pid)
        shown = time.monotonic()
        try:
            while (status := process.poll()) is None:
                for number in self.interruption.received[forwarded:]:
                    process.send_signal(number)
                    forwarded += 1
                self.interruption.drain()
                if forwarded == len(self.interruption.received):
                    pause = max(0.0, shown + self.display.interval_seconds - time.monotonic())
                    select.select([handle, self.interruption.fileno()], [], [], pause)
                if time.monotonic() >= shown + self.display.interval_seconds:
                    shown = time.monotonic()
                    if process.poll() is None:
                        self.display.update(read_progress(output))
        finally:
            os.close(handle)
        return status

    def _parse(
        self, name: str, folder: Path, status: int, request: ActionRequest, result: type[Result]
    ) -> Result:
        path = folder / "result.json"
        try:
            document: dict[str, Any] = json.loads(path.read_bytes())
            succeeded = document["ok"]
        except (ValueError, KeyError, TypeError):
            # Its workload became ours to end: it runs on instrumented sources.
            processes.kill_all(processes.living_descendants)
            raise StepEndedError(
                f"step {name} ended with {describe_status(status)} and without a result; if it "
                "was killed during a trace, run `opguard-tools recover` on the checkout"
                + quote_log(folder / "stderr.log"),
                step=name,
            ) from None
        if not succeeded:
            kept = Path(request.output, INCOMPLETE_NAME)
            if kept.is_file():
                return validate(read_json_object(kept), result, source=str(kept))
            error = document["error"]
            raise StepFailedError(name, error["type"], error["message"])
        return validate(document["result"], result, source=str(path))
