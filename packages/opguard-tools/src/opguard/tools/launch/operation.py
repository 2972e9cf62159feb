"""One run of a workload under the tracer: checks before, the run, checks after."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from opguard.tools.durable import write_durable
from opguard.tools.formats import INCOMPLETE_NAME
from opguard.tools.launch.errors import LauncherFailedError, WorkloadEndedError
from opguard.tools.launch.interruption import Interruption
from opguard.tools.launch.judge import check_files, check_run
from opguard.tools.launch.paths import OperationPaths, check_paths
from opguard.tools.launch.progress import TextReporter, list_batches
from opguard.tools.launch.receipts import Evidence, Receipt, read_evidence
from opguard.tools.launch.requests import WorkerRequest
from opguard.tools.launch.settings import CaptureSettings, capture_settings
from opguard.tools.launch.supervise import (
    Command,
    Outcome,
    Supervisor,
    forwards_signals,
    grace_seconds,
)
from opguard.tools.protocol.errors import OpGuardError, WorkloadNotFoundError
from opguard.tools.protocol.models import (
    CaptureResult,
    DeterminismPolicy,
    Ending,
    FingerprintLayout,
    LaunchRequest,
    Workload,
)

_WORKER_MODULE = "opguard.tools.worker"
_SETTLE_SECONDS = 3.0  # a network file system may show a directory's new entries late

Result = TypeVar("Result", bound=CaptureResult)


@dataclass(frozen=True)
class Operation:
    """A checked, not yet started run.

    Attributes:
        action: ``discover`` or ``trace``.
        request: The action's request.
        paths: Its directories.
        settings: Its capture settings.
        capture_id: Identity of the capture to be made.
        started_at: UTC time, ISO 8601.
        started: The same on the monotonic clock, in seconds.
    """

    action: Literal["discover", "trace"]
    request: LaunchRequest
    paths: OperationPaths
    settings: CaptureSettings
    capture_id: str
    started_at: str
    started: float

    @classmethod
    def check(cls, action: Literal["discover", "trace"], request: LaunchRequest) -> Operation:
        """Check everything that can be checked without changing anything.

        Raises:
            OutputExistsError: The output directory is not fresh.
            PathConflictError: Directories overlap.
            WorkloadNotFoundError: Checkout, script or launcher is missing.
            InvalidSettingError: An ``OPGUARD_*`` variable is out of range.
        """
        workload = request.workload
        paths = check_paths(request.output, checkout=workload.cwd, local_root=request.local_root)
        check_program(workload)
        return cls(
            action=action,
            request=request,
            paths=paths,
            settings=capture_settings(workload.env),
            capture_id=secrets.token_hex(16),
            started_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            started=time.monotonic(),
        )

    @property
    def checkout(self) -> Path:
        """The workload's checkout, resolved."""
        assert self.paths.checkout is not None
        return self.paths.checkout

    def run(
        self,
        interruption: Interruption,
        *,
        plan: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> Outcome:
        """Start the workload and wait for its end.

        The output directory exists already. How well the run went is for ``conclude`` to say,
        which a trace calls after it has put the sources back.

        Args:
            interruption: Active; notes signals to this program.
            plan: The plan's copy in the output directory.
            environment: Variables of the operation itself; they override the workload's own.

        Raises:
            LauncherFailedError: The launcher could not be started.
            ProcessesLeftError: A process survived SIGKILL.
            InterruptedOperationError: A signal arrived before the start.
        """
        workload = self.request.workload
        request_path = WorkerRequest(
            self.action, self.capture_id, self.request, self.paths, self.settings, plan
        ).write()
        command = Command(
            argv=[
                *workload.launcher,
                "-m",
                _WORKER_MODULE,
                str(request_path),
                workload.script,
                *workload.args,
            ],
            cwd=self.checkout,
            env={**os.environ, **workload.env, **(environment or {})},
            output=self.paths.output,
        )
        return Supervisor(
            command,
            timeout_seconds=self.request.timeout_seconds,
            grace=grace_seconds(workload.launcher),
            forwards=forwards_signals(workload.launcher),
            interruption=interruption,
            reporter=TextReporter(self.action),
        ).run()

    def conclude(
        self, outcome: Outcome, make: Callable[[Evidence, dict[str, Any]], Result]
    ) -> Result:
        """Check that the run succeeded and its capture is complete.

        A workload that ended by itself, but not well, is an error as well; what it recorded until
        then is described in ``incomplete.json``, from which a comparison can go on.

        Args:
            outcome: How the launcher ended.
            make: Makes the action's result of what the ranks left and the fields that all
                captures share.

        Raises:
            OpGuardError: One of the errors of ``opguard.tools.launch.errors``.

        Source:
            Protocol requirements B6, B13.
        """
        try:
            evidence = self._verify(outcome)
        except (WorkloadEndedError, LauncherFailedError) as error:
            self._describe_incomplete(outcome, error, make)
            raise
        return make(evidence, self._result_fields(evidence))

    def _verify(self, outcome: Outcome) -> Evidence:
        ranks = self.request.workload.ranks
        evidence = read_evidence(self.paths.capture, self.capture_id)
        deadline = time.monotonic() + _SETTLE_SECONDS
        while (
            outcome.exit_status == 0
            and not set(ranks) <= set(evidence.receipts)
            and not evidence.worker_errors
            and time.monotonic() < deadline
        ):
            time.sleep(0.2)
            evidence = read_evidence(self.paths.capture, self.capture_id)
        check_run(
            outcome,
            evidence,
            ranks=ranks,
            timeout_seconds=self.request.timeout_seconds,
            log=self.paths.log,
        )
        check_files(evidence, self.paths.capture, self.capture_id)
        self._remove_staging()
        return evidence

    def _describe_incomplete(
        self,
        outcome: Outcome,
        error: OpGuardError,
        make: Callable[[Evidence, dict[str, Any]], Result],
    ) -> None:
        """Write what a result would hold, for the ranks that recorded something."""
        evidence = read_evidence(self.paths.capture, self.capture_id, lenient=True)
        if evidence.duplicates or evidence.worker_errors:
            return
        usable = [
            rank for rank in self.request.workload.ranks if list_batches(self.paths.capture, rank)
        ]
        if not usable:
            return
        ending = Ending(
            error_type=error.error_type,
            message=error.message.partition("\n")[0],
            launcher_status=outcome.exit_status,
        )
        left = Evidence({r: evidence.receipts[r] for r in usable if r in evidence.receipts})
        fields = self._result_fields(left) | {"ranks": usable, "ending": ending}
        document = make(left, fields).model_dump_json(indent=1)
        write_durable(self.paths.output / INCOMPLETE_NAME, document.encode())

    def _remove_staging(self) -> None:
        """Remove this capture's staging on this node: everything in it has been published."""
        assert self.paths.local_root is not None
        for folder in self.paths.local_root.glob(f"staging-{self.capture_id}-*"):
            shutil.rmtree(folder, ignore_errors=True)

    def _result_fields(self, evidence: Evidence) -> dict[str, Any]:
        """The fields that the results of `discover` and `trace` share."""
        receipts = list(evidence.receipts.values())
        return {
            "output": str(self.paths.output),
            "capture": str(self.paths.capture),
            "capture_id": self.capture_id,
            "checkout": str(self.checkout),
            "log": str(self.paths.log),
            "ranks": list(evidence.receipts),
            "captured": [receipt.to_result() for receipt in receipts],
            **self._facts_of_the_run(receipts[0] if receipts else None),
            "observer_effects": sorted(
                {effect for receipt in receipts for effect in receipt.observer_effects}
            ),
            "started_at": self.started_at,
            "elapsed_seconds": round(time.monotonic() - self.started, 3),
        }

    def _facts_of_the_run(self, receipt: Receipt | None) -> dict[str, Any]:
        """What a rank's receipt says for all; without one, what was asked for."""
        if receipt is None:
            import xorsig

            schemes = [xorsig.XOR_SCHEME, xorsig.MIX_SCHEME]
            return {
                "fingerprint": FingerprintLayout(schemes=schemes, regions=self.settings.regions),
                "determinism": DeterminismPolicy(
                    requested=self.settings.deterministic, settings={}
                ),
                "versions": {},
            }
        versions = {name: text for name, text in receipt.versions.items() if text is not None}
        return {
            "fingerprint": receipt.fingerprint,
            "determinism": receipt.determinism,
            "versions": versions,
        }


def check_program(workload: Workload) -> None:
    """Check that script and launcher are there, before anything is started or changed.

    Raises:
        WorkloadNotFoundError: Names the field.
    """
    script = Path(workload.cwd, workload.script)
    if not script.is_file():
        raise WorkloadNotFoundError(
            f"workload.script: {script} is not a file; give it absolute or relative to "
            "workload.cwd",
            path=script,
        )
    program = workload.launcher[0]
    search = workload.env.get("PATH", os.environ.get("PATH"))
    located = Path(workload.cwd, program) if os.sep in program else program
    if shutil.which(located, path=search) is None:
        raise WorkloadNotFoundError(
            f"workload.launcher: no program {program} that can be run was found; give its path, "
            f"such as {sys.executable}",
            path=program,
        )
