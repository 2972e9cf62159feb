"""What recording does when it fails, and where the workload makes it hard: the workload goes on."""

import _thread
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

import xorsig
from opguard.core import _site
from opguard.core._site import site
from opguard.core.recording.recorder import CallRecorder


@pytest.fixture(params=[True, False], ids=["native", "python"])
def native(request) -> bool:
    return request.param


def record(program, writer, *, native: bool) -> CallRecorder:
    recorder = CallRecorder(writer, 4, threading.get_ident(), native=native)
    _site.install(recorder)
    try:
        program()
    finally:
        _site.install(None)
        recorder.close()
    return recorder


def break_role(writer, monkeypatch, role: int) -> None:
    """Make a writer fail to take tensors of a role."""
    tensor = writer.tensor

    def refuse(call, given, *record):
        if given == role:
            raise OSError("the disk is full")
        return tensor(call, given, *record)

    monkeypatch.setattr(writer, "tensor", refuse)


def panic_at(writer, monkeypatch, role: int) -> None:
    """Make the native code panic when it writes a tensor of a role for the first time."""
    tensor, left = writer.tensor, [None]

    def panic(call, given, *record):
        if given == role and left:
            left.pop()
            raise xorsig.PanicException("out of bounds")
        return tensor(call, given, *record)

    monkeypatch.setattr(writer, "tensor", panic)


def break_all(writer, monkeypatch) -> None:
    """Make a writer fail to take anything."""

    def refuse(*_record):
        raise OSError("the disk is full")

    for method in ("intern", "layout", "begin", "end", "tensor", "value", "mark"):
        monkeypatch.setattr(writer, method, refuse)


def test_gradient_that_cannot_be_recorded_is_a_note_and_backward_runs(
    writer, monkeypatch, native
) -> None:
    break_role(writer, monkeypatch, 4)
    x = torch.ones(2, requires_grad=True)

    def program() -> None:
        site(0, torch.mul)(x, 2.0).sum().backward()

    recorder = record(program, writer, native=native)
    assert x.grad.tolist() == [2.0, 2.0]
    assert recorder.failures == 1
    assert writer.marks == [(2, 0, "recorder failure", "gradient: OSError: the disk is full")]


@pytest.mark.parametrize("role", [0, 1, 3, 4])
def test_panic_is_a_failure_and_nothing_wrong_is_recorded_after_it(
    writer, monkeypatch, native, role
) -> None:
    panic_at(writer, monkeypatch, role)
    called = []

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            called.append(x)
            return x * self.weight

    module = Scale()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)

    def program() -> None:
        y = site(0, torch.mul)(torch.ones(2), 2.0)
        y = site(1, module)(y)
        site(2, y.sum().backward)()
        site(3, optimizer.step)()
        site(4, torch.neg)(y)

    recorder = record(program, writer, native=native)
    assert len(called) == 1
    assert module.weight.tolist() == [0.0, 0.0]
    assert recorder.failures > 0
    assert recorder.stack == []
    first, *later = [text for *_, name, text in writer.marks if name == "recorder failure"]
    assert first.endswith("PanicException: out of bounds")
    # Nothing is recorded from a state that may be anything.
    assert later != []
    assert all(text.endswith("RuntimeError: the recorder has failed before") for text in later)
    assert all(facts["site"] != 4 for facts in writer.calls.values())


def test_panic_of_the_workloads_own_reaches_it(writer, native) -> None:
    called = []

    def fail(x):
        called.append(x)
        raise xorsig.PanicException("its own")

    def program() -> None:
        with pytest.raises(xorsig.PanicException, match="its own"):
            site(0, fail)(1)
        site(1, torch.neg)(torch.ones(1))

    assert record(program, writer, native=native).failures == 0
    assert called == [1]
    assert [facts["parent"] for facts in writer.calls.values()] == [0, 0]
    assert all("status" in facts for facts in writer.calls.values())


def test_training_goes_on_when_nothing_can_be_written_any_more(writer, monkeypatch, native) -> None:
    x = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([x], lr=0.5)

    def program() -> None:
        site(0, torch.neg)(x)
        break_all(writer, monkeypatch)
        y = site(1, torch.mul)(x, 2.0)
        site(2, lambda y: y.sum().backward())(y)
        site(3, optimizer.step)()

    recorder = record(program, writer, native=native)
    assert x.tolist() == [0.0, 0.0]
    assert recorder.failures > 0
    assert recorder.step == 1
    assert len(writer.calls) == 1


def test_call_whose_generators_cannot_be_read_adopts_no_later_call(
    writer, monkeypatch, native
) -> None:
    def outer(x):
        with monkeypatch.context() as patch:
            patch.delattr(torch.cuda, "_initialized")
            y = site(1, functional.dropout)(x)
        return site(2, torch.neg)(y)

    recorder = record(lambda: site(0, outer)(torch.ones(2)), writer, native=native)
    calls = {facts["callee"]: facts for facts in writer.calls.values()}
    assert recorder.failures == 1
    assert calls["neg"]["parent"] == 1
    assert all("status" in facts for facts in calls.values())


def test_call_that_raises_has_an_end_where_a_parameter_of_another_class_was_met(
    writer, native
) -> None:
    class Named(nn.Parameter):
        pass

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = Named(torch.ones(2))

        def forward(self, x):
            return x * self.weight

    module = Scale()

    def outer(x):
        site(1, module)(x)
        raise KeyError

    def program() -> None:
        with pytest.raises(KeyError):
            site(0, outer)(torch.ones(2))

    recorder = record(program, writer, native=native)
    assert recorder.failures == 0
    assert writer.order == [("begin", 1), ("begin", 2), ("end", 2), ("end", 1)]
    assert writer.calls[1]["error"] == "KeyError"


def test_mode_that_a_call_enters_does_not_see_the_end_of_its_record(writer, native) -> None:
    class Listening(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen = []

        def __torch_function__(self, function, types, args=(), kwargs=None):
            self.seen.append(function)
            return function(*args, **(kwargs or {}))

    mode = Listening()

    def enter(x, freed):
        freed.untyped_storage().resize_(0)
        mode.__enter__()
        return x

    def program() -> None:
        x = torch.ones(2, requires_grad=True)
        try:
            site(0, enter)(x * 2, torch.ones(3))
        finally:
            mode.__exit__(None, None, None)

    recorder = record(program, writer, native=native)
    assert mode.seen == []
    assert recorder.failures == 0
    assert writer.slots(1, 1)["arg[1]"][2] == "storage is freed"


def test_modules_that_hold_one_another_are_walked_once_each(writer, native) -> None:
    class Node(nn.Module):
        def __init__(self, parent: nn.Module | None) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.parent = parent

        def forward(self, x):
            return x * self.weight

    root = Node(None)
    root.left, root.right = Node(root), Node(root)
    record(lambda: site(0, root)(torch.ones(2)), writer, native=native)
    assert list(writer.slots(1, 0)) == [
        "arg[0]",
        "param.weight",
        "param.left.weight",
        "param.right.weight",
    ]


def test_gradient_may_be_dropped_by_another_thread_while_it_is_read(writer, native) -> None:
    rounds, size = 10, 1 << 22
    module = nn.Linear(size, 1, bias=False)
    filled = threading.Semaphore(0)

    def drop() -> None:
        for _ in range(rounds):
            filled.acquire()
            module.weight.grad = None

    def fill(number: int) -> None:
        module.weight.grad = torch.full((1, size), float(number))
        filled.release()

    def program() -> None:
        module.weight.grad = torch.ones(1, size)
        site(0, module)(torch.ones(size))
        thread = threading.Thread(target=drop)
        thread.start()
        for number in range(rounds):
            site(1, fill)(number)
        thread.join()

    interval = sys.getswitchinterval()
    # The other thread runs only when the GIL is given up, as it is while many bytes are read.
    sys.setswitchinterval(5)
    try:
        assert record(program, writer, native=native).failures == 0
    finally:
        sys.setswitchinterval(interval)


FORKING = """
import os, signal, sys, threading
import torch
from conftest import MemoryWriter
from opguard.core import _site
from opguard.core._site import site
from opguard.core.recording.recorder import CallRecorder

graphs, reading = [], threading.Event()

def fork():
    reading.wait()
    for y in graphs:
        child = os.fork()
        if child == 0:
            # A child that waits for ever ends here, too.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)
            y.sum().backward()
            site(0, torch.neg)(y)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        print(status)
        if status != 0:
            return

recorder = CallRecorder(MemoryWriter(), 4, threading.get_ident(), native=sys.argv[1] == "True")
_site.install(recorder)
x = torch.ones(2, requires_grad=True)
graphs.extend(site(0, torch.mul)(x, 2.0) for _ in range(20))
large = torch.ones(1 << 23)
thread = threading.Thread(target=fork)
thread.start()
reading.set()
while thread.is_alive():
    site(0, torch.numel)(large)
_site.install(None)
recorder.close()
print(recorder.failures)
"""


def test_child_forked_while_a_large_tensor_is_read_runs_its_backward_pass(native, tmp_path) -> None:
    """The thread that reads holds the recorder's locks, and is not there in the child."""
    # In a process of its own: what else this one has run decides whether CPython 3.11 aborts a
    # child that is forked by another thread than the main one ("thread state already initialized").
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-u", "-c", FORKING, str(native)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    statuses, failures = 20 * ["0"], ["0"]
    assert done.stdout.split() == statuses + failures, done.stderr


def test_ends_and_gradients_are_recorded_while_a_thread_of_the_engine_records(
    writer, monkeypatch, native
) -> None:
    began, tensor = threading.Event(), writer.tensor

    def slow(call, role, *record):
        if role == 4 and call == 1:
            began.set()
            time.sleep(0.2)
        return tensor(call, role, *record)

    monkeypatch.setattr(writer, "tensor", slow)

    def wait(y):
        # As those of the engine, this thread is not one of Python's.
        _thread.start_new_thread(y.backward, (torch.ones(2), True))
        assert began.wait(30)

    def program() -> None:
        x = torch.ones(2, requires_grad=True)
        y = site(0, torch.mul)(x, 2.0)
        other = torch.ones(2, requires_grad=True)
        z = site(0, torch.mul)(other, 3.0)
        site(1, wait)(y)
        began.clear()
        wait(y)
        z.sum().backward()

    recorder = record(program, writer, native=native)
    assert recorder.failures == 0
    assert [facts.get("status") for facts in writer.calls.values()] == [0, 0, 0]
    assert list(writer.slots(1, 4)) == list(writer.slots(2, 4)) == ["grad.out"]
