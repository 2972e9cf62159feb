"""Programs that break tracers, recorded in full: what each of them demands of a tracer.

A script's own assertions demand the rest: they end it with another status where a tracer shows.
"""

from __future__ import annotations

import json
from pathlib import Path

from opguard_traced import Traced, run_traced

from opguard_e2e import make_checkout

FORWARD, BACKWARD, OPTIMIZER = range(3)


def traced(name: str, shared_root: Path, tmp_path: Path) -> Traced:
    source = shared_root / "cases" / "stress" / name
    case = json.loads((source / "case.json").read_text())
    checkout = make_checkout(source, tmp_path / "checkout")
    found = run_traced(checkout, tmp_path, ranks=case["ranks"])
    found.assert_the_same()
    return found


def test_tensors_without_memory_are_described_and_user_modes_see_their_own_operators(
    shared_root: Path, tmp_path: Path
) -> None:
    found = traced("stress_01_subclasses_and_modes", shared_root, tmp_path)
    notes = {row["note"] for row in found.table("tensors") if row["note"]}
    assert "meta tensor" in notes


def test_operations_inside_transforms_have_their_own_lines(
    shared_root: Path, tmp_path: Path
) -> None:
    found = traced("stress_03_functorch_transforms", shared_root, tmp_path)
    functions = {site["qualname"].rpartition(".")[2] for site in found.plan["sites"]}
    assert {"loss_one", "<lambda>"} <= functions
    inside = [
        call["call"]
        for call in found.table("calls")
        if found.sites()[call["site"]]["qualname"].endswith("loss_one")
    ]
    slots = {row["slot"] for row in found.table("tensors") if row["call"] in inside}
    assert any(".batched[" in slot for slot in slots)


def test_hooks_run_as_often_and_optimizer_in_backward_is_named_as_such(
    shared_root: Path, tmp_path: Path
) -> None:
    found = traced("stress_07_autograd_hooks_custom_ops", shared_root, tmp_path)
    sites = found.sites()
    phases = {
        call["phase"]
        for call in found.table("calls")
        if sites[call["site"]]["qualname"].endswith("fused_step")
    }
    assert phases
    assert phases <= {BACKWARD, OPTIMIZER}
