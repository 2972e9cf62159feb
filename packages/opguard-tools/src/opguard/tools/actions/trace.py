"""``trace``: instrument a checkout as planned, run the workload, put the checkout back."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

from opguard.tools.actions.activity import activity_fields
from opguard.tools.actions.plans import CheckedPlan
from opguard.tools.durable import write_durable
from opguard.tools.formats import PLAN_NAME, RESULT_NAME, SOURCES_NAME
from opguard.tools.launch.interruption import Interruption
from opguard.tools.launch.operation import Operation
from opguard.tools.launch.paths import make_directories
from opguard.tools.launch.receipts import Evidence
from opguard.tools.protocol.models import TraceRequest, TraceResult
from opguard.tools.transaction import (
    CheckoutLock,
    SourceTransaction,
    bytecode_environment,
    refuse_marked,
)


def run(request: TraceRequest) -> TraceResult:
    """Trace the workload.

    The checkout is locked for the whole operation, its sources are put back however the run ends,
    and what was captured until a failure stays in the output directory.

    Raises:
        OpGuardError: Any of the errors of planning, locking, instrumenting, launching and
            verifying.

    Source:
        Protocol requirements B1-B8, D1-D6.
    """
    operation = Operation.check("trace", request)
    checkout, output = operation.checkout, operation.paths.output
    with Interruption() as interruption, CheckoutLock(checkout, "trace"):
        refuse_marked(checkout)
        plan = CheckedPlan.read(request.plan, checkout)
        plan.check_patterns(operation.settings.selection.patterns)
        instrumented = plan.instrument()
        make_directories(operation.paths)
        plan_copy = output / PLAN_NAME
        write_durable(plan_copy, plan.data)
        _save_sources(plan, output / SOURCES_NAME)
        assert operation.paths.local_root is not None
        bytecode = bytecode_environment(operation.paths.local_root, operation.capture_id)
        try:
            with SourceTransaction(
                checkout,
                operation.paths.instrument,
                instrumented,
                {file.path: file.sha256 for file in plan.plan.files},
                "trace",
            ):
                outcome = operation.run(
                    interruption,
                    plan=plan_copy,
                    environment=bytecode,
                )
        finally:
            _remove_bytecode(Path(bytecode["PYTHONPYCACHEPREFIX"]))
        interruption.check()
        result = operation.conclude(
            outcome,
            lambda evidence, fields: TraceResult(
                **fields,
                plan=str(plan_copy),
                plan_sha256=plan.sha256,
                **_stated_by_ranks(evidence),
                **activity_fields(
                    output, operation.paths.capture, evidence.receipts.values(), plan.plan.sites
                ),
                instrumented_files=[file.path for file in plan.plan.files],
            ),
        )
    write_durable(output / RESULT_NAME, result.model_dump_json(indent=1).encode())
    return result


def _stated_by_ranks(evidence: Evidence) -> dict[str, Any]:
    """What a rank's receipt says of every rank's recording: all have the same request."""
    receipt = next(iter(evidence.receipts.values()), None)
    if receipt is None:
        return {}
    return {"selection": receipt.selection, "device_activity": receipt.device_activity}


def _remove_bytecode(folder: Path) -> None:
    """Remove this capture's bytecode, and the folder around it unless another one uses it."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()


def _save_sources(plan: CheckedPlan, folder: Path) -> None:
    """Keep the originals with the capture, so that a report can show them at any later time."""
    for path, data in plan.originals.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
