"""Capture does not change a training: not one bit of a parameter, not one random number."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from opguard_e2e import EXAMPLE, Protocol, make_checkout, workload_environment

PROGRAM = '''\
"""Train the example and write digests of everything that training leaves behind."""

import hashlib
import json
import random
import sys

import numpy
import torch
from config import Config
from train import train


def digest(data):
    return hashlib.sha256(data).hexdigest()


def digests(tensors):
    return {name: digest(tensor.detach().numpy().tobytes()) for name, tensor in tensors}


if __name__ == "__main__":
    random.seed(5)
    numpy.random.seed(6)
    torch.set_num_threads(1)
    model = train(Config(steps=6, evaluate_every=3))
    noise = random.random() + float(numpy.random.rand())
    left = {
        "parameters": digests(model.named_parameters()),
        "gradients": digests((n, p.grad) for n, p in model.named_parameters()),
        "torch": digest(torch.get_rng_state().numpy().tobytes()),
        "numpy": digest(numpy.random.get_state()[1].tobytes()),
        "python": digest(repr(random.getstate()).encode()),
        "noise": noise,
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "fill": torch.utils.deterministic.fill_uninitialized_memory,
        "autocast": torch.is_autocast_enabled("cpu"),
        "precision": torch.get_float32_matmul_precision(),
    }
    with open(sys.argv[1], "w") as out:
        json.dump(left, out)
'''


class Outcomes(NamedTuple):
    """What the training left behind, without a tool and under each action."""

    plain: dict[str, Any]
    discover: dict[str, Any]
    trace: dict[str, Any]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """One plain run, one discovery and one trace of the same training."""
    folder = tmp_path_factory.mktemp("nonperturbation")
    source = folder / "source"
    shutil.copytree(EXAMPLE / "baseline", source)
    (source / "measure.py").write_text(PROGRAM)
    checkout = make_checkout(source, folder / "checkout")
    result = folder / "digests.json"
    subprocess.run(
        [sys.executable, "measure.py", str(result)],
        cwd=checkout.path,
        env=workload_environment(),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    plain = json.loads(result.read_text())
    protocol = Protocol(folder)
    _, plan = protocol.discover_and_prepare(checkout.path, "measure.py", str(result))
    discovered = json.loads(result.read_text())
    result.unlink()
    fields = protocol.launch_fields(checkout.path, "measure.py", str(result))
    protocol.call("trace", **fields, plan=plan)
    return Outcomes(plain, discovered, json.loads(result.read_text()))


@pytest.mark.requirement("B9")
def test_trace_leaves_the_same_bits_as_a_plain_run(outcomes: Outcomes) -> None:
    assert outcomes.trace == outcomes.plain


@pytest.mark.requirement("B9")
def test_discovery_leaves_the_same_bits_as_a_plain_run(outcomes: Outcomes) -> None:
    assert outcomes.discover == outcomes.plain
