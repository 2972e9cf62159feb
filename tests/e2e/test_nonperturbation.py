"""Capture does not change a training: not one bit of a parameter, not one random number."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from pathlib import Path
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


HEAP_PROGRAM = '''\
"""Train on matrices of 4 MiB and write the size of the C library's heap, MiB, early and late."""

import ctypes
import json
import sys

import torch
from torch import nn

FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()


class Sizes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


def heap():
    information = ctypes.CDLL(None).mallinfo2
    information.restype = Sizes
    return information().arena / 2**20


def step(weights, features, optimizer):
    for weight in weights:
        features = torch.relu(torch.matmul(features, weight))
    loss = torch.mean(features)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(1024, 1024) / 32) for _ in range(2)]
    optimizer = torch.optim.SGD(weights, lr=1e-3, foreach=False)
    features = torch.randn(1024, 1024)
    sizes = []
    for _ in range(24):
        step(weights, features, optimizer)
        sizes.append(heap())
    with open(sys.argv[1], "w") as out:
        json.dump([sizes[8], sizes[-1]], out)


if __name__ == "__main__":
    main()
'''


@pytest.mark.requirement("B9")
@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library does not tell its heap size"
)
def test_traced_heap_does_not_grow(tmp_path: Path) -> None:
    """Small blocks of ours between the workload's large ones kept glibc from using those again."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "measure.py").write_text(HEAP_PROGRAM)
    checkout = make_checkout(source, tmp_path / "checkout")
    result = tmp_path / "heap.json"
    protocol = Protocol(tmp_path)
    _, plan = protocol.discover_and_prepare(checkout.path, "measure.py", str(result))
    fields = protocol.launch_fields(checkout.path, "measure.py", str(result))
    protocol.call("trace", **fields, plan=plan)
    early, late = json.loads(result.read_text())
    # It grew by 27 MiB a step; a plain run moves up and down by 30 MiB in all.
    assert late - early < 100
