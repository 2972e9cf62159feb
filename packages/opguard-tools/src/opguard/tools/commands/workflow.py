"""The steps of ``diff`` on two checkouts, from discovery to the report."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from opguard.tools.commands.steps import StepRunner
from opguard.tools.formats import REPORTS_NAME
from opguard.tools.protocol.models import (
    PROTOCOL_VERSION,
    CompareRequest,
    CompareResult,
    Counterpart,
    DiscoverRequest,
    DiscoverResult,
    PrepareRequest,
    PrepareResult,
    TraceRequest,
    TraceResult,
    Workload,
)

STEPS = 7
"""Discover, prepare and trace on both sides, and the comparison; repeats come on top."""


@dataclass(frozen=True)
class SideOptions:
    """What may differ between the sides besides the checkout.

    Attributes:
        launcher: Argument vector of the launcher.
        environment: Variables added for the workload.
    """

    launcher: list[str]
    environment: dict[str, str]


@dataclass(frozen=True)
class WorkloadOptions:
    """How both sides are run.

    Attributes:
        script: Program, relative to each checkout.
        sides: ``baseline`` and ``candidate``.
        arguments: Arguments of the script.
        ranks: Number of ranks that the launcher starts.
        timeout_seconds: Time limit of each run.
        depth: How deep calls are recorded.
    """

    script: str
    sides: dict[str, SideOptions]
    arguments: list[str]
    ranks: int
    timeout_seconds: float
    depth: Literal["auto", "call", "aten"] = "auto"

    def workload(self, side: str, checkout: Path) -> Workload:
        """The workload of one side."""
        return Workload(
            cwd=str(checkout),
            launcher=self.sides[side].launcher,
            script=self.script,
            args=self.arguments,
            env=self.sides[side].environment,
            ranks=list(range(self.ranks)),
        )


def default_launcher(ranks: int | None, interpreter: str | None = None) -> list[str]:
    """An interpreter, or torchrun in it when a number of ranks is asked for.

    Args:
        ranks: Number of ranks; None for one process without torchrun.
        interpreter: Path of a Python interpreter; this one by default.
    """
    python = sys.executable if interpreter is None else interpreter
    if ranks is None:
        return [python]
    return [
        python,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
    ]


@dataclass(frozen=True)
class Traces:
    """The traces of both sides, and further ones of the baseline."""

    baseline: TraceResult
    candidate: TraceResult
    repeats: list[TraceResult]

    @property
    def succeeded(self) -> bool:
        """Whether every traced workload ended with status 0."""
        return all(t.ending is None for t in (self.baseline, self.candidate, *self.repeats))


@dataclass(frozen=True)
class Workflow:
    """Runs all steps; nothing is kept in memory between them but their results.

    Attributes:
        steps: Runs one step.
        output: Directory of the whole comparison; exists.
        local_root: Staging directory.
        options: How both sides are run.
        repeats: Further traces of the baseline.
    """

    steps: StepRunner
    output: Path
    local_root: Path
    options: WorkloadOptions
    repeats: int = 0

    def trace(self, checkouts: dict[str, Path]) -> Traces:
        """Discover, prepare and trace both sides.

        A workload that ends by itself without success is no failure here: what it recorded until
        then is gone on with.

        Args:
            checkouts: ``baseline`` and ``candidate``, resolved; may be the same directory.

        Raises:
            StepFailedError: A step reported an error.
            StepEndedError: A step's process was killed.
            InterruptedOperationError: A signal arrived; everything is restored.
        """
        workloads = {side: self.options.workload(side, path) for side, path in checkouts.items()}
        for side in checkouts:
            (self.output / side).mkdir()
        discoveries = {side: self._discover(side, workloads[side]) for side in checkouts}
        plans = {
            side: self._prepare(side, other, workloads, discoveries)
            for side, other in (("baseline", "candidate"), ("candidate", "baseline"))
        }
        traces = {
            side: self._trace(side, "trace", workloads[side], plans[side]) for side in checkouts
        }
        repeats = [
            self._trace("baseline", f"repeat-{n}", workloads["baseline"], plans["baseline"])
            for n in range(1, self.repeats + 1)
        ]
        return Traces(traces["baseline"], traces["candidate"], repeats)

    def _common(self, side: str, name: str) -> dict[str, Any]:
        return {
            "protocol_version": PROTOCOL_VERSION,
            "output": str(self.output / side / name),
        }

    def _launch(self, side: str, name: str) -> dict[str, Any]:
        return {
            **self._common(side, name),
            "local_root": str(self.local_root),
            "timeout_seconds": self.options.timeout_seconds,
        }

    def _discover(self, side: str, workload: Workload) -> DiscoverResult:
        request = DiscoverRequest(**self._launch(side, "discover"), workload=workload)
        return self.steps.run(f"{side}-discover", "discover", request, DiscoverResult)

    def _prepare(
        self,
        side: str,
        other: str,
        workloads: dict[str, Workload],
        discoveries: dict[str, DiscoverResult],
    ) -> PrepareResult:
        request = PrepareRequest(
            **self._common(side, "prepare"),
            workload=workloads[side],
            discovery=discoveries[side],
            counterpart=Counterpart(workload=workloads[other], discovery=discoveries[other]),
            depth=self.options.depth,
        )
        return self.steps.run(f"{side}-prepare", "prepare", request, PrepareResult)

    def _trace(self, side: str, name: str, workload: Workload, plan: PrepareResult) -> TraceResult:
        """Trace one side into a folder of the given name."""
        request = TraceRequest(**self._launch(side, name), workload=workload, plan=plan)
        return self.steps.run(f"{side}-{name}", "trace", request, TraceResult)

    def compare(self, traces: Traces) -> CompareResult:
        """Compare traces that succeeded.

        Raises:
            StepFailedError: The step reported an error.
            StepEndedError: The step's process was killed.
            InterruptedOperationError: A signal arrived.
        """
        request = CompareRequest(
            protocol_version=PROTOCOL_VERSION,
            output=str(self.output / REPORTS_NAME),
            baseline=traces.baseline,
            candidate=traces.candidate,
            ranks=list(range(self.options.ranks)),
            repeats=traces.repeats,
        )
        return self.steps.run("compare", "compare", request, CompareResult)
