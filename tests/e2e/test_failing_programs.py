"""Trainings that end without success: the divergence before the end, and what ended how."""

from __future__ import annotations

from pathlib import Path

import pytest

from opguard_e2e import make_checkout, run_diff

PROGRAM = '''\
"""Train a small classifier and stop it in the middle of the fourth step."""

import os
import signal
import sys

import torch


class Stopped(Exception):
    pass


def stop(number, frame):
    raise Stopped(f"signal {number}")


def end(how, logits):
    if how == "raise" and not torch.isfinite(logits).all():
        raise FloatingPointError("the logits are not finite")
    if how == "os._exit":
        os._exit(3)
    if how == "signal":
        signal.signal(signal.SIGTERM, stop)
        os.kill(os.getpid(), signal.SIGTERM)


def main(how):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        x, y = torch.randn(4, 6), torch.randint(0, 3, (4,))
        logits = model(x) * SCALE
        if step == 3:
            end(how, logits * LIMIT)
        loss = torch.nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main(sys.argv[1])
'''


def make_side(folder: Path, name: str, *, scale: str = "1.0", limit: str = "1.0") -> Path:
    source = folder / f"{name}-source"
    source.mkdir()
    text = PROGRAM.replace("SCALE", scale).replace("LIMIT", limit)
    (source / "train.py").write_text(text)
    return make_checkout(source, folder / name).path


@pytest.mark.requirement("B13")
def test_candidate_that_crashes_is_compared_up_to_the_crash(tmp_path: Path) -> None:
    baseline = make_side(tmp_path, "baseline")
    candidate = make_side(tmp_path, "candidate", scale="1.5", limit="float('inf')")

    status, document = run_diff(baseline, candidate, tmp_path / "out", "raise")

    source = (candidate / "train.py").read_text().splitlines()
    (ending,) = document["endings"]["ranks"]
    raised = ending["exception"]
    assert (status, document["endings"]["alike"]) == (1, False)
    assert source[document["first"]["candidate"]["line"] - 1].strip() == "logits = model(x) * 1.5"
    assert document["first"]["step"] == 0
    assert (ending["side"], ending["kind"], ending["steps"]) == ("candidate", "exception", 3)
    assert (raised["type"], raised["file"]) == ("FloatingPointError", "train.py")
    assert "raise FloatingPointError" in source[raised["line"] - 1]
    assert max(origin["step"] for origin in document["origins"]) <= 3
    # What the baseline did after the candidate's crash is no difference.
    assert {entry["side"] for entry in document["unpaired"]} == {"candidate"}


@pytest.mark.requirement("B13")
@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("os._exit", "left through os._exit with status 3"),
        ("signal", "raised Stopped: signal 15 (train.py:15)"),
    ],
)
def test_program_that_stops_itself_agrees_with_itself(how: str, text: str, tmp_path: Path) -> None:
    checkout = make_side(tmp_path, "baseline")

    status, document = run_diff(checkout, checkout, tmp_path / "out", how)

    assert (status, document["first"], document["endings"]["alike"]) == (0, None, True)
    assert [
        (entry["side"], entry["text"], entry["steps"], entry["recorded_to_end"])
        for entry in document["endings"]["ranks"]
    ] == [(side, text, 3, True) for side in ("baseline", "candidate")]
    assert max(entry["step"] for entry in document["steps"]) == 3
