"""The glue for training loops, with the real libraries: equal runs agree, and a change is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from opguard_e2e import run_tool

pytestmark = pytest.mark.filterwarnings("ignore")
"""The libraries warn of their own use of torch and of this machine."""


def compared(tmp_path: Path, train: Callable[[str, float], list[torch.Tensor]]) -> dict[str, Any]:
    """Train three times, the last time differently; the document of the comparison that differs.

    Args:
        tmp_path: Receives the captures.
        train: Trains into a directory with a value that decides something in a library; an empty
            name trains without a recording. Gives the parameters.
    """
    plain, first, again = train("", 0.0), train("a", 0.0), train("b", 0.0)
    same = zip(plain, first, again, strict=True)
    assert all(torch.equal(x, y) and torch.equal(x, z) for x, y, z in same)
    train("c", 0.5)

    def diff(candidate: str) -> tuple[int, dict[str, Any]]:
        sides = (str(tmp_path / "a"), str(tmp_path / candidate))
        completed = run_tool(
            "diff", "--json", "--captures", *sides, "--output", str(tmp_path / f"out-{candidate}")
        )
        return completed.returncode, json.loads(completed.stdout)

    status, document = diff("b")
    assert (status, document["origins"], document["warnings"]) == (0, [], [])
    assert document["observed"]["pairs"] > 20
    status, document = diff("c")
    assert status == 1
    return document


def test_plain_loop(tmp_path: Path) -> None:
    from opguard.core.integrations.loop import recorded

    def train(name: str, dropout: float) -> list[torch.Tensor]:
        torch.manual_seed(0)
        layers = (torch.nn.Linear(4, 8), torch.nn.Dropout(dropout), torch.nn.Linear(8, 1))
        model = torch.nn.Sequential(*layers)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batches: Any = [torch.randn(3, 4) for _ in range(5)]
        for number, batch in enumerate(recorded(batches, tmp_path / name) if name else batches):
            if number == 4:
                break
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        return list(model.parameters())

    first = compared(tmp_path, train)["first"]
    assert first["step"] == 0
    assert (first["candidate"] or first["baseline"])["file"].endswith("functional.py")


def test_hugging_face_trainer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="the Trainer needs accelerate")
    from opguard.core.integrations.huggingface import OpGuardCallback

    def train(name: str, more: float) -> list[torch.Tensor]:
        transformers.set_seed(0)
        sizes = {"vocab_size": 32, "n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 2}
        config = transformers.GPT2Config(**sizes, layer_norm_epsilon=1e-5 + more)
        data = [{"input_ids": torch.arange(8) + i, "labels": torch.arange(8) + i} for i in range(8)]
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path / "trainer"),
            max_steps=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            report_to=[],
            use_cpu=True,
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(
            model=transformers.GPT2LMHeadModel(config),
            args=arguments,
            train_dataset=data,
            callbacks=[OpGuardCallback(tmp_path / name)] if name else [],
        )
        trainer.train()
        return list(trainer.model.parameters())

    first = compared(tmp_path, train)["first"]
    assert (first["step"], first["baseline"]["library"]) == (0, True)
    assert "layer_norm" in first["baseline"]["call"]


def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
    from opguard.core.integrations.lightning import OpGuardCallback

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self, more: float) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(4, eps=1e-5 + more)
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            loss: torch.Tensor = self.layer(self.norm(batch)).square().mean()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.1)

    def train(name: str, more: float) -> list[torch.Tensor]:
        lightning.seed_everything(0)
        model = Model(more)
        quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
        trainer = lightning.Trainer(
            max_steps=3,
            accelerator="cpu",
            callbacks=[OpGuardCallback(tmp_path / name)] if name else [],
            **dict.fromkeys(quiet, False),
        )
        trainer.fit(model, torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=2))
        return list(model.parameters())

    first = compared(tmp_path, train)["first"]
    assert first["step"] == 0
    assert "layer_norm" in first["baseline"]["call"]
