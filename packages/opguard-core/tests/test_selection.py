"""A user's budget: steps, phases, callsites and levels that are recorded, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import opguard.core
from opguard.core.selection import Selection

polars = pytest.importorskip("polars", reason="reading Parquet in this test needs polars")


@pytest.fixture(autouse=True)
def single_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)


def test_steps_are_numbers_and_ranges() -> None:
    chosen = Selection.of(steps="0-3, 10,20-")
    taken = [step for step in range(30) if chosen.takes_step(step)]
    assert taken == [0, 1, 2, 3, 10, *range(20, 30)]
    assert Selection.of(steps=range(2)).document()["steps"] == "0,1"
    assert Selection().takes_step(7)


def test_patterns_of_callsites_take_in_and_out() -> None:
    chosen = Selection.of(callsites="model.py,lib/*:Attention.*,!*:*.forward:print")
    sites = {
        ("model.py", "f", "torch.add"): True,
        ("lib/a.py", "Attention.forward", "self.q"): True,
        ("lib/a.py", "Block.forward", "self.q"): False,
        ("lib/a.py", "Attention.forward", "print"): False,
        ("train.py", "f", "g"): False,
    }
    assert {site: chosen.takes_callsite(*site) for site in sites} == sites
    assert Selection.of(callsites="!a.py").takes_callsite("b.py", "f", "g")


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("steps", "a"),
        ("steps", "3-1"),
        ("steps", ""),
        ("steps", "1,,2"),
        ("steps", "-1"),
        ("phases", "sideways"),
        ("phases", []),
        ("callsites", "a.py,,b.py"),
        ("callsites", "a:b:c:d"),
        ("levels", "0"),
        ("levels", "two"),
    ],
)
def test_malformed_part_is_named(part: str, text: Any) -> None:
    with pytest.raises(ValueError, match=part):
        Selection.of(**{part: text})


def recorded(tmp_path: Path, **selection: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Calls and receipt of a small training."""
    import xorsig

    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    output = tmp_path / "out"
    with opguard.core.capture(output, root=Path(__file__).parent, **selection) as session:
        forward = session.observe(model, name="model")
        step = session.observe(optimizer.step, name="step")
        total = session.observe(torch.sum, name="sum")
        for _ in range(4):
            with session.scope("batch"):
                optimizer.zero_grad()
                total(forward(torch.ones(3, 2))).backward()
                step()
    final = [parameter.tolist() for parameter in model.parameters()]
    assert final == trained()
    receipt = json.loads(xorsig.read_receipt(str(output / "capture/receipts/rank-0.receipt")))
    tables = tmp_path / "tables"
    identity = {"capture_id": receipt["capture_id"], "rank": 0}
    xorsig.materialize(str(output / "capture/rank-0"), str(tables), **identity)
    calls = polars.read_parquet(tables / "calls.parquet").to_dicts()
    plan = json.loads((output / "plan.json").read_text())
    names = {site["id"]: site["callee"] for site in plan["sites"]}
    return [call | {"name": names[call["site"]]} for call in calls], receipt


def trained() -> list[Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()
    return [parameter.tolist() for parameter in model.parameters()]


EACH_STEP = ["batch", "model", "sum", "step"]


def test_only_selected_steps_are_recorded_and_the_clock_goes_on(tmp_path: Path) -> None:
    calls, receipt = recorded(tmp_path, steps="1,3-")
    assert [(call["step"], call["name"]) for call in calls] == [
        (step, name) for step in (1, 3) for name in EACH_STEP
    ]
    assert receipt["counts"]["steps"] == 4
    assert receipt["selection"] == {
        "steps": "1,3-",
        "phases": None,
        "callsites": [],
        "levels": None,
    }
    assert all(call["status"] == 0 for call in calls)


def test_only_selected_phases_are_recorded(tmp_path: Path) -> None:
    calls, _ = recorded(tmp_path, phases="forward")
    assert [call["name"] for call in calls] == ["batch", "model", "sum"] * 4


def test_only_selected_callsites_are_recorded(tmp_path: Path) -> None:
    calls, _ = recorded(tmp_path, callsites=["*:*:model", "*:*:s*", "!*:*:step"])
    assert [call["name"] for call in calls] == ["model", "sum"] * 4


def test_only_selected_levels_are_recorded(tmp_path: Path) -> None:
    calls, _ = recorded(tmp_path, levels=1)
    assert [call["name"] for call in calls] == ["batch"] * 4


def test_environment_selects_where_no_argument_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPGUARD_SELECT_STEPS", "0")
    calls, _ = recorded(tmp_path)
    assert [call["name"] for call in calls] == EACH_STEP


def test_everything_is_no_selection(tmp_path: Path) -> None:
    calls, receipt = recorded(tmp_path)
    assert [call["name"] for call in calls] == EACH_STEP * 4
    assert receipt["selection"] is None
