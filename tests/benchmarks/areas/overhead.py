"""A traced training against the same training plain: what a user of ``trace`` pays for a step.

Each round runs every subject once in a process of its own; a sample is the median of its steps.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from harness import Area, Claim, Figure, Group, Settings, Subject
from harness.machine import REPOSITORY

BENCHMARKS = REPOSITORY / "tests" / "benchmarks"
STEPS = {"A": 12, "B": 400, "C": 16}
TARGETS = {"A": 1.20, "B": 1.35, "C": 1.05}
MOST_ROUNDS = 7
"""A round of workload A alone takes a minute."""
PLAIN, TRACED, IDLE = "plain", "traced", "traced, step not selected"
DEBUG, PROBE = "DebugMode", "msprobe L1"
PROGRAMS = {DEBUG: "debug_mode", PROBE: "msprobe"}
"""What the program calls its peers."""
ADDED_AT_MOST = {("A", DEBUG): 0.1, ("B", DEBUG): 0.1, ("B", PROBE): 0.05}
"""Targets of the time that tracing adds, as a part of what a peer adds."""


def area(settings: Settings) -> Area:
    """Workloads A, B and C."""
    notes = [
        "traced: discover, prepare and trace of the real source; all callsites, forward, backward "
        "and optimizer, both schemes, 4 regions, 1 computing thread",
        "DebugMode: torch.utils._debug_mode with hash_tensor of inputs and outputs",
        "msprobe L1: statistics of every call of torch's functions (PyPI mindstudio-probe), in B",
    ]
    return Area("a step of a traced training", _groups(settings, notes), notes)


def _groups(settings: Settings, notes: list[str]) -> Iterator[Group]:
    for workload in ("B",) if settings.smoke else ("A", "B", "C"):
        folder = Path(tempfile.mkdtemp(prefix="opguard-bench-"))
        try:
            runs = _Runs(folder, workload, 3 if settings.smoke else STEPS[workload])
            rounds = min(settings.rounds, MOST_ROUNDS)
            peers = [] if settings.smoke else _peers(workload, notes)
            measured = [runs.round(peers) for _ in range(rounds)]
            yield _group(workload, "wall", measured, TARGETS[workload])
            yield _group(workload, "processor", measured, None)
        finally:
            shutil.rmtree(folder)


Round = Mapping[str, Mapping[str, Sequence[float]]]


def _group(workload: str, clock: str, rounds: Sequence[Round], target: float | None) -> Group:
    samples = {name: [median(measured[name][clock]) for measured in rounds] for name in rounds[0]}

    def figures(_: Mapping[str, Sequence[float]]) -> Iterator[Figure]:
        plain = median(samples[PLAIN])
        yield Figure("added by tracing", (median(samples[TRACED]) - plain) * 1e3, "ms a step")
        for peer in (DEBUG, PROBE):
            if peer in samples:
                share = (median(samples[TRACED]) - plain) / (median(samples[peer]) - plain)
                limit = ADDED_AT_MOST.get((workload, peer)) if target is not None else None
                yield Figure(f"added, of what {peer} adds", share, "x", at_most=limit)

    claims = [Claim(TRACED, PLAIN, target, ratio="time")]
    if IDLE in samples:
        claims.append(Claim(IDLE, PLAIN, None, ratio="time"))
    return Group(
        name=f"workload {workload}, {clock} time",
        subjects={name: Subject(_never, 1) for name in samples},
        claims=claims,
        unit="steps",
        collect=lambda: samples,
        figures=figures,
    )


class _Runs:
    """A checkout of one workload, discovered and prepared."""

    def __init__(self, folder: Path, workload: str, steps: int) -> None:
        self.folder = folder
        self.checkout = folder / "checkout"
        self.checkout.mkdir()
        shutil.copy(BENCHMARKS / "workloads.py", self.checkout)
        shutil.copy(BENCHMARKS / "programs" / "overhead_train.py", self.checkout / "train.py")
        self.output = folder / "times.json"
        self.arguments = [workload, str(steps), str(self.output)]
        self.operations = 0
        workload_fields = self._workload([workload, "2", str(self.output)])
        discovery = self._call(
            "discover", workload=workload_fields, local_root=str(folder / "local")
        )
        self.plan = self._call("prepare", workload=workload_fields, discovery=discovery)

    def round(self, peers: Sequence[str]) -> Round:
        """The times of every subject's steps."""
        times = {PLAIN: self._plain(), TRACED: self._traced()}
        if peers:
            times[IDLE] = self._traced(OPGUARD_SELECT_STEPS="0")
        for peer in peers:
            times[peer] = self._plain(PROGRAMS[peer])
        return times

    def _plain(self, *extra: str) -> Any:
        subprocess.run(
            [sys.executable, "train.py", *self.arguments, *extra],
            cwd=self.checkout,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            check=True,
        )
        return json.loads(self.output.read_text())

    def _traced(self, **variables: str) -> Any:
        workload = self._workload(self.arguments) | {"env": variables}
        self._call(
            "trace", workload=workload, local_root=str(self.folder / "local"), plan=self.plan
        )
        return json.loads(self.output.read_text())

    def _workload(self, arguments: list[str]) -> dict[str, Any]:
        return {
            "cwd": str(self.checkout),
            "launcher": [sys.executable],
            "script": "train.py",
            "args": arguments,
            "env": {},
            "ranks": [0],
        }

    def _call(self, action: str, **fields: Any) -> dict[str, Any]:
        self.operations += 1
        request = self.folder / f"{self.operations}.json"
        output = self.folder / f"{self.operations}-{action}"
        document = {"protocol_version": 1, "output": str(output), **fields}
        if action != "prepare":
            document["timeout_seconds"] = 900.0
        request.write_text(json.dumps(document))
        completed = subprocess.run(
            [sys.executable, "-m", "opguard.tools", action, "--request", str(request)],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        envelope = json.loads(completed.stdout or "{}")
        if not envelope.get("ok"):
            raise RuntimeError(f"{action} failed: {completed.stdout}{completed.stderr}")
        return dict(envelope["result"])


def _peers(workload: str, notes: list[str]) -> list[str]:
    """Other tools to run the workload under."""
    if workload != "B":
        return [DEBUG]
    if importlib.util.find_spec("msprobe") is None:
        notes.append("msprobe is not installed: no comparison with it")
        return [DEBUG]
    return [DEBUG, PROBE]


def _never() -> None:
    raise AssertionError("the samples come from programs that time themselves")
