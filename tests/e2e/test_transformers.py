"""Hugging Face's Trainer on a tiny random model, with one function of transformers edited.

Runs in the nox session `libraries`, which installs transformers; skipped elsewhere.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from environments import LIBRARIES

from opguard_e2e import make_checkout, run_tool, workload_environment

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("transformers", "accelerate")),
    reason="transformers and accelerate are not installed: run `nox -s libraries`",
)

MODEL = "transformers/models/llama/modeling_llama.py"
ROTATED = "return torch.cat((-x2, x1), dim=-1)"
ROTATED_WRONGLY = "return torch.cat((x2, -x1), dim=-1)"


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of transformers in which the rotary embedding turns the other way."""
    found = importlib.util.find_spec("transformers")
    assert found is not None
    assert found.origin is not None
    folder = tmp_path_factory.mktemp("patched")
    source = Path(found.origin).parent
    # Links, since only one of the files differs.
    shutil.copytree(
        source, folder / "transformers", copy_function=os.symlink,
        ignore=shutil.ignore_patterns("__pycache__"),
    )  # fmt: skip
    target = folder / MODEL
    text = target.read_text()
    assert text.count(ROTATED) == 1
    target.unlink()
    target.write_text(text.replace(ROTATED, ROTATED_WRONGLY))
    return folder


@pytest.fixture(scope="module")
def found(patched: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The document of the comparison, with one more run of the baseline."""
    folder = tmp_path_factory.mktemp("transformers")
    checkout = make_checkout(LIBRARIES / "transformers_checkout", folder / "checkout")
    completed = run_tool(
        *("diff", "--json", "--repeat", "1", "--output", str(folder / "out")),
        *("--baseline", str(checkout.path), "--candidate", str(checkout.path)),
        *("--candidate-env", f"PYTHONPATH={patched}"),
        env=workload_environment(HF_HUB_OFFLINE="1"),
    )
    assert completed.returncode == 1, completed.stderr
    return dict(json.loads(completed.stdout))


def test_the_edited_line_of_transformers_comes_first(found: dict[str, Any], patched: Path) -> None:
    candidate = found["first"]["candidate"]
    line = (patched / MODEL).read_text().splitlines().index(f"    {ROTATED_WRONGLY}") + 1

    assert (candidate["file"], candidate["line"]) == (str(patched / MODEL), line)
    assert candidate["qualname"] == "rotate_half"
    assert candidate["library"] is True
    assert candidate["callsite"]["text"] == "trainer.train()"
    assert any(MODEL in step["file"] for step in candidate["via"])


def test_equal_runs_of_the_trainer_agree_in_every_operator(found: dict[str, Any]) -> None:
    repeats = found["repeatability"]

    assert (repeats["runs"], repeats["differing_runs"]) == (1, 0)
    assert found["warnings"] == []
    assert found["observed"]["pairs"] > 1000
