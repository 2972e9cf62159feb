"""One program plain, under discovery and under two traces, which are compared with each other."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars

import xorsig
from opguard_e2e import COMMAND_TIMEOUT_SECONDS, Checkout, Protocol, workload_environment


@dataclass(frozen=True)
class Traced:
    """What the runs left behind.

    Attributes:
        stdout: Lines of the plain run, sorted.
        logs: Those of them that each recorded run printed, sorted, by its folder.
        plan: The plan's document.
        document: The comparison of the two traces.
        trace: Output directory of the first trace.
    """

    stdout: list[str]
    logs: dict[str, list[str]]
    plan: dict[str, Any]
    document: dict[str, Any]
    trace: Path

    def assert_the_same(self) -> None:
        """Every run printed the same, and the traces do not differ."""
        assert self.stdout
        assert self.logs == dict.fromkeys(self.logs, self.stdout)
        assert (self.document["origins"], self.document["warnings"]) == ([], [])
        observed = self.document["observed"]
        # A call from which the process leaves by os._exit has no end.
        relations = observed["relations"] | {"equal": 0, "incomplete": 0}
        assert not any(relations.values())
        assert observed["relations"]["equal"] >= observed["pairs"] - 1 > 5

    def table(self, name: str, rank: int = 0) -> list[dict[str, Any]]:
        """A table of the first trace."""
        result = json.loads((self.trace / "result.json").read_text())
        folder = self.trace.parent / "tables" / f"rank-{rank}"
        if not folder.exists():
            source = str(self.trace / "capture" / f"rank-{rank}")
            identity = {"capture_id": result["capture_id"], "rank": rank}
            xorsig.materialize(source, str(folder), **identity)
        return polars.read_parquet(folder / f"{name}.parquet").to_dicts()

    def sites(self) -> dict[int, dict[str, Any]]:
        """Callsites of the plan by number."""
        return {site["id"]: site for site in self.plan["sites"]}


def launcher(ranks: int) -> list[str]:
    """This interpreter, or torchrun in it."""
    if ranks == 1:
        return [sys.executable]
    torchrun = ("-m", "torch.distributed.run", "--standalone")
    return [sys.executable, *torchrun, f"--nproc-per-node={ranks}"]


def run_traced(checkout: Checkout, folder: Path, *, ranks: int = 1) -> Traced:
    """Run ``train.py`` of a checkout in every way; each of them must succeed.

    Args:
        checkout: The program.
        folder: Receives everything.
        ranks: Number of ranks.
    """
    plain = subprocess.run(
        [*launcher(ranks), "train.py"],
        cwd=checkout.path,
        env=workload_environment(PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_SECONDS,
        check=True,
    )
    expected = sorted(plain.stdout.splitlines())
    protocol = Protocol(folder)
    fields = protocol.launch_fields(checkout.path, "train.py", timeout_seconds=500.0)
    fields["workload"] |= {"launcher": launcher(ranks), "ranks": list(range(ranks))}
    logs: dict[str, list[str]] = {}

    def run(action: str, **more: Any) -> dict[str, Any]:
        result = protocol.call(action, **fields, **more)
        name = f"{protocol.operations}-{action}"
        lines = (folder / name / "workload.log").read_text(errors="replace").splitlines()
        # Standard error is in the log as well, and the lines of ranks interleave.
        logs[name] = sorted(line for line in lines if line in expected)
        return result

    discovery = run("discover")
    prepared = protocol.call("prepare", workload=fields["workload"], discovery=discovery)
    first, second = (run("trace", plan=prepared) for _ in range(2))
    checkout.assert_untouched()
    compared = protocol.call("compare", baseline=first, candidate=second, ranks=list(range(ranks)))
    return Traced(
        stdout=expected,
        logs=logs,
        plan=json.loads(Path(prepared["plan"]).read_text()),
        document=json.loads(Path(compared["summary_json"]).read_text()),
        trace=Path(first["output"]),
    )
