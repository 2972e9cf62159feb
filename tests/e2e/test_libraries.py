"""Difference inside a library that the checkout only calls: its line is found.

Each comparison traces the baseline once more, and no place of it may differ between equal runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from environments import LIBRARIES, make_environment

from opguard_e2e import make_checkout, run_tool

HARMLESS = {"optim.py": (', alpha=1 - group["momentum"]', "")}
BACKWARD = {"model.py": ("gradient.clamp(-0.01, 0.01)", "gradient.clamp(-0.02, 0.02)")}

ENCODER = '''\
"""Train an encoder of torch itself."""

import torch

torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
encoder = torch.nn.TransformerEncoder(layer, 2)
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
for _ in range(2):
    x = torch.randn(2, 3, 8)
    loss = encoder(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
encoder.eval()
with torch.no_grad():
    print(encoder(torch.randn(2, 3, 8)).sum())
'''


def diff(output: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    completed = run_tool("diff", "--json", "--output", str(output), *arguments)
    assert completed.returncode in (0, 1), completed.stderr
    document = json.loads(completed.stdout)
    assert document["warnings"] == []
    return completed.returncode, document


def assert_repeatable(document: dict[str, Any]) -> None:
    assert (document["repeatability"]["runs"], document["repeatability"]["differing_runs"]) == (
        1,
        0,
    )


@pytest.fixture
def compare(tmp_path: Path) -> Any:
    """Compares the old version of the library with an edited one, for one unchanged checkout."""
    checkout = make_checkout(LIBRARIES / "checkout", tmp_path / "checkout")
    make_environment(tmp_path / "old-env", "old")

    def compare(version: str, edits: dict[str, tuple[str, str]]) -> tuple[int, dict[str, Any]]:
        make_environment(tmp_path / "new-env", version, edits)
        result = diff(
            tmp_path / "out",
            *("--baseline", str(checkout.path), "--candidate", str(checkout.path)),
            *("--baseline-python", str(tmp_path / "old-env")),
            *("--candidate-python", str(tmp_path / "new-env")),
            *("--repeat", "1"),
        )
        checkout.assert_untouched()
        return result

    return compare


def test_upgrade_that_moved_renamed_and_changed_functions_is_found_at_the_changed_line(
    compare: Any, tmp_path: Path
) -> None:
    status, document = compare("new", {})

    first = document["first"]
    assert status == 1
    assert_repeatable(document)
    assert (first["phase"], first["step"]) == ("optimizer", 0)
    packages = "lib/python*/site-packages/small_trainer"
    for side, environment, file, text in (
        ("baseline", "old-env", "momentum.py", "add_(p.grad)"),
        ("candidate", "new-env", "optim.py", 'add_(p.grad, alpha=1 - group["momentum"])'),
    ):
        path = next((tmp_path / environment).glob(f"{packages}/{file}"))
        assert first[side]["library"] is True
        assert first[side]["file"] == str(path)
        assert text in path.read_text().splitlines()[first[side]["line"] - 1]
        assert first[side]["callsite"]["file"] == "train.py"
        assert first[side]["operator"] == "aten::add_"


def test_upgrade_that_only_moved_and_renamed_functions_shows_no_difference(compare: Any) -> None:
    status, document = compare("new", HARMLESS)

    assert_repeatable(document)
    assert (status, document["origins"]) == (0, [])
    assert document["observed"]["pairs"] > 100


def test_changed_backward_of_a_library_is_found_at_its_line(compare: Any) -> None:
    status, document = compare("old", BACKWARD)

    first = document["first"]
    assert status == 1
    assert_repeatable(document)
    assert first["phase"] == "backward"
    assert first["candidate"]["qualname"] == "Clipped.backward"
    assert first["candidate"]["operator"] == "aten::clamp"
    assert first["candidate"]["text"] == "gradient.clamp(-0.02, 0.02)"


def test_difference_inside_a_module_of_torch_names_the_callsite_and_the_operator(
    tmp_path: Path,
) -> None:
    for side, activation in (("a", "relu"), ("b", "gelu")):
        (tmp_path / side).mkdir()
        text = ENCODER.replace("dropout=0.1", f"dropout=0.1, activation={activation!r}")
        (tmp_path / side / "train.py").write_text(text)

    status, document = diff(
        tmp_path / "out",
        *("--baseline", str(tmp_path / "a"), "--candidate", str(tmp_path / "b")),
        *("--repeat", "1"),
    )

    assert status == 1
    assert_repeatable(document)
    places = [document["first"][side] for side in ("baseline", "candidate")]
    named = {place["operator"] for place in places if place is not None}
    assert named & {"aten::relu", "aten::gelu"}
    for place in places:
        if place is not None:
            assert (place["file"], place["text"]) == ("train.py", "encoder(x)")
            assert "torch/nn/" in place["inside"]["file"]
