"""However a trace ends, the checkout is what it was: bytes, modification times, git's view.

The workload behaves differently only where its own source is instrumented, so one program serves
discovery (which must succeed) and trace (which must not).
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from opguard_e2e import (
    COMMAND_TIMEOUT_SECONDS,
    Checkout,
    Protocol,
    file_states,
    make_checkout,
    tool_command,
    workload_environment,
)

PROGRAM = '''\
"""Train a little; where the source is instrumented, do what argv says."""

import signal
import sys

import torch


def train():
    weight = torch.ones(8, 8)
    for _ in range(3):
        weight = torch.tanh(weight @ weight)
    return weight


with open(__file__) as source:
    instrumented = "opg" "uard.core" in source.read()
train()
if instrumented and sys.argv[1] == "raise":
    raise ArithmeticError("the loss is not finite")
if instrumented and sys.argv[1] == "wait":
    with open(sys.argv[2], "w") as ready:
        ready.write("ready")
    while True:
        signal.pause()
'''


class Stage(NamedTuple):
    """A checkout whose program is ready to be traced."""

    checkout: Checkout
    protocol: Protocol
    trace: Callable[..., dict[str, Any]]
    ready: Path


def stage_in(folder: Path, behaviour: str) -> Stage:
    """Discover and prepare the program, with a pipe on which it says that it is running."""
    source = folder / "source"
    source.mkdir()
    (source / "train.py").write_text(PROGRAM)
    checkout = make_checkout(source, folder / "checkout")
    ready = folder / "ready"
    os.mkfifo(ready)
    protocol = Protocol(folder)
    arguments = ("train.py", behaviour, str(ready))
    _, plan = protocol.discover_and_prepare(checkout.path, *arguments)

    def trace(timeout_seconds: float = 300.0) -> dict[str, Any]:
        fields = protocol.launch_fields(checkout.path, *arguments, timeout_seconds=timeout_seconds)
        return {**fields, "plan": plan}

    return Stage(checkout, protocol, trace, ready)


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A program that waits for ever once it is traced."""
    return stage_in(tmp_path_factory.mktemp("waiting"), "wait")


def wait_until_ready(pipe: int) -> None:
    """Block until the workload has written to its pipe."""
    readable, _, _ = select.select([pipe], [], [], COMMAND_TIMEOUT_SECONDS)
    assert readable, "the workload never said that it runs"
    os.read(pipe, 64)


def interrupt(command: list[str], stage: Stage, number: signal.Signals) -> tuple[int, str, str]:
    """Start a command, signal it once the traced workload runs; status, stdout and stderr."""
    pipe = os.open(stage.ready, os.O_RDONLY | os.O_NONBLOCK)
    process = subprocess.Popen(
        command,
        env=workload_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until_ready(pipe)
        assert file_states(stage.checkout.path) != stage.checkout.states
        assert (stage.checkout.path / ".opguard" / "harness-active.json").exists()
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=COMMAND_TIMEOUT_SECONDS)
    finally:
        os.close(pipe)
        process.kill()
    return process.returncode, stdout, stderr


@pytest.mark.requirement("D5", "B8")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_during_trace_restores_the_checkout(waiting: Stage, number: signal.Signals) -> None:
    request = waiting.protocol.write_request("trace", **waiting.trace())
    command = waiting.protocol.argv("trace", request)
    status, stdout, stderr = interrupt(command, waiting, number)
    assert status != 0
    assert json.loads(stdout)["error"]["type"] == "interrupted", stderr
    waiting.checkout.assert_untouched()


@pytest.mark.requirement("D5", "B8")
def test_timeout_of_trace_restores_the_checkout(waiting: Stage) -> None:
    pipe = os.open(waiting.ready, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status, envelope = waiting.protocol.attempt("trace", **waiting.trace(timeout_seconds=10))
    finally:
        os.close(pipe)
    assert status != 0
    assert envelope["error"]["type"] == "workload_timeout", envelope
    waiting.checkout.assert_untouched()


@pytest.mark.requirement("D5")
def test_exception_in_traced_script_restores_the_checkout(tmp_path: Path) -> None:
    stage = stage_in(tmp_path, "raise")
    status, envelope = stage.protocol.attempt("trace", **stage.trace())
    assert status != 0
    assert envelope["error"]["type"] == "script_raised", envelope
    assert "ArithmeticError" in envelope["error"]["message"]
    stage.checkout.assert_untouched()


@pytest.mark.requirement("D5")
def test_interrupted_diff_restores_the_checkout(waiting: Stage, tmp_path: Path) -> None:
    other = make_checkout(waiting.checkout.path, tmp_path / "candidate")
    command = tool_command(
        *("diff", "--baseline", str(waiting.checkout.path), "--candidate", str(other.path)),
        *("--output", str(tmp_path / "out"), "--", "wait", str(waiting.ready)),
    )
    status, _, _ = interrupt(command, waiting, signal.SIGTERM)
    assert status not in (0, 1)
    waiting.checkout.assert_untouched()
    other.assert_untouched()
