"""Seeds, data and programs that do not repeat themselves, on small real trainings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opguard_e2e import run_tool

TRAINING = """\
import torch
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.manual_seed(0)
    xs = torch.arange(32, dtype=torch.float32).reshape(16, 2)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(SEED)
    loader = DataLoader(TensorDataset(xs), batch_size=4, shuffle=True, generator=generator)
    for (x,) in loader:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
"""

VARYING = """\
import os

import torch


def main() -> None:
    x = torch.arange(4.0)
    noise = torch.tensor(list(os.urandom(4)))
    y = x * SCALE
    print((x + noise).sum(), y.sum())


main()
"""


def checkout(folder: Path, program: str) -> Path:
    folder.mkdir()
    (folder / "train.py").write_text(program)
    return folder


def diff(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Exit status, document and progress of ``diff`` on ``baseline`` and ``candidate``."""
    completed = run_tool(
        *("diff", "--json", "--baseline", str(folder / "baseline")),
        *("--candidate", str(folder / "candidate"), "--output", str(folder / "out"), *options),
    )
    assert completed.returncode in (0, 1), completed.stderr
    return completed.returncode, json.loads(completed.stdout), completed.stderr


@pytest.fixture(scope="module")
def reseeded(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any]]:
    """A sampler with a generator of its own, seeded otherwise on either side."""
    folder = tmp_path_factory.mktemp("reseeded")
    checkout(folder / "baseline", TRAINING.replace("SEED", "0"))
    checkout(folder / "candidate", TRAINING.replace("SEED", "1"))
    status, document, _ = diff(folder)
    return status, document


def test_other_order_of_samples_is_named_before_any_operation(
    reseeded: tuple[int, dict[str, Any]],
) -> None:
    status, document = reseeded

    (item,) = document["circumstances"]
    assert status == 1
    assert (item["kind"], item["step"], item["before_first"]) == ("data_order", 0, True)
    assert item["locations"]["baseline"]["text"] == "loader"


def test_origin_at_the_loader_is_marked_and_shown_once(
    reseeded: tuple[int, dict[str, Any]],
) -> None:
    _, document = reseeded

    assert document["first"]["circumstance"] == "data_order"
    assert document["first"]["repeats"] == {"count": 3, "ranks": [0], "steps": [[1, 3]]}


def test_what_varies_between_equal_runs_is_set_apart_from_the_real_difference(
    tmp_path: Path,
) -> None:
    checkout(tmp_path / "baseline", VARYING.replace("SCALE", "2.0"))
    checkout(tmp_path / "candidate", VARYING.replace("SCALE", "2.5"))

    status, document, progress = diff(tmp_path, "--repeat", "1")

    assert status == 1
    assert document["first"]["baseline"]["line"] == 9
    assert {origin["baseline"]["line"] for origin in document["not_repeatable"]} == {8}
    assert document["repeatability"]["differing_runs"] == 1
    assert "[8/8] compare: done" in progress


def test_arguments_of_two_captures_are_named_while_no_value_differs(tmp_path: Path) -> None:
    program = "import torch\n\nx = torch.arange(4.0)\nprint((x * 2.0).sum())\n"
    checkout(tmp_path / "baseline", program)
    checkout(tmp_path / "candidate", program)
    diff(tmp_path, "--", "--name", "one")
    other = tmp_path / "other"
    other.mkdir()
    checkout(other / "baseline", program)
    checkout(other / "candidate", program)
    diff(other, "--", "--name", "two")

    completed = run_tool(
        *("diff", "--captures", str(tmp_path / "out" / "baseline")),
        *(str(other / "out" / "candidate"), "--output", str(tmp_path / "again")),
    )

    assert completed.returncode == 0
    assert completed.stdout.splitlines()[1] == (
        "  arguments      --name is one in the baseline and two in the candidate"
    )
