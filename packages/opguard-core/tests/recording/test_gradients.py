"""Gradients of recorded outputs: by torch's announcements of nodes, and by hooks without them."""

import ctypes
import gc
import itertools
import os
import signal
import struct
import subprocess
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

import xorsig
from opguard.core import _site
from opguard.core._site import site
from opguard.core.recording import native
from opguard.core.recording.recorder import CallRecorder

GRADIENT = 4
CAPTURE_ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture(params=["announced to a capture", "announced", "hooked"])
def recorded_gradients(
    request, new_writer, monkeypatch, tmp_path
) -> Callable[[Callable[[], None]], list]:
    """Runs a program and gives call, slot and layout and fingerprint of each gradient in order."""
    if request.param == "hooked":
        without_announcements(monkeypatch)
    runs = itertools.count()

    def run(program: Callable[[], None]) -> list:
        if request.param != "announced to a capture":
            writer = new_writer()
            record(program, writer, announced=request.param == "announced")
            records = [record for record in writer.tensors if record.role == GRADIENT]
            return [(record.call, record.slot, record.what) for record in records]
        capture = tmp_path / f"capture-{next(runs)}"
        writer = new_capture(capture)
        record(program, writer)
        writer.close()
        return captured_gradients(capture)

    return run


def new_capture(folder: Path) -> xorsig.CaptureWriter:
    return xorsig.CaptureWriter(
        folder / "rank-0", folder / "staging", capture_id=CAPTURE_ID, rank=0, regions=4
    )


def captured_gradients(folder: Path) -> list:
    """As a writer in memory numbers calls: from 1 on."""
    pl = pytest.importorskip("polars", reason="reading Parquet in these tests needs polars")
    xorsig.materialize(
        folder / "rank-0", folder / "tables", capture_id=CAPTURE_ID, rank=0, partial=True
    )
    tables = {
        name: pl.read_parquet(folder / "tables" / f"{name}.parquet").to_dicts()
        for name in ("calls", "layouts", "tensors")
    }
    numbers = {call: number for number, call in enumerate((c["call"] for c in tables["calls"]), 1)}
    layouts = {layout["layout"]: layout for layout in tables["layouts"]}
    gradients = [row for row in tables["tensors"] if row["role"] in (GRADIENT, "gradient")]
    found = []
    for row in sorted(gradients, key=lambda row: row["tick"]):
        layout = layouts[row["layout"]]
        values = [*(row["xor_sig"] or []), *(row["mix_sig"] or [])]
        signature = struct.pack(f"={len(values)}I", *values) if values else row["note"]
        what = (layout["dtype"], tuple(layout["shape"]), signature)
        found.append((numbers[row["call"]], row["slot"], what))
    return found


def without_announcements(monkeypatch) -> None:
    """Have no part of an announcement hold what is known of its node."""
    make = native._make_node

    def wrong(*kind):
        run, tensor, number, gradients = make(*kind)
        return run, tensor, number + 1, gradients

    monkeypatch.setattr(native, "_make_node", wrong)


def record(program, writer, *, announced: bool | None = None) -> None:
    recorder = CallRecorder(writer, 4, threading.get_ident())
    _site.install(recorder)
    try:
        assert announced is None or announces() == announced
        program()
    finally:
        _site.install(None)
        recorder.close()
    assert recorder.failures == 0


def places(gradients: list) -> list[tuple[int, str]]:
    return [(call, slot) for call, slot, _ in gradients]


def announces() -> bool:
    """Whether torch announces anything to anyone."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    function = library[b"_ZN2at18hasGlobalCallbacksEv".decode()]
    function.restype = ctypes.c_bool
    return function()


def test_nodes_get_no_hooks_on_this_torch(recorder, writer, monkeypatch) -> None:
    kind = next(k for k in torch.autograd.Function.__mro__ if "_register_hook" in k.__dict__)
    monkeypatch.setattr(kind, "_register_hook", lambda *_: pytest.fail("a hook is registered"))
    y = site(0, torch.mul)(torch.ones(2, requires_grad=True), 2)
    y.sum().backward()
    assert [record.slot for record in writer.tensors if record.role == GRADIENT] == ["grad.out"]


def test_torch_announces_nodes_only_while_one_records(new_writer) -> None:
    assert not announces()
    first = CallRecorder(new_writer(), 4, threading.get_ident())
    second = CallRecorder(new_writer(), 4, threading.get_ident())
    assert announces()
    first.close()
    assert announces()
    second.close()
    assert not announces()


def test_every_kind_of_output_gets_its_gradient(recorded_gradients) -> None:
    def program() -> None:
        x = torch.arange(6.0).view(2, 3).requires_grad_()
        first, second = site(0, torch.unbind)(x)
        spread, middle = site(1, torch.var_mean)(x, 1)
        turned = site(2, x.t)()
        alone = site(3, x.sum)()
        half = site(4, x.to)(torch.bfloat16)
        complex_ = site(5, torch.view_as_complex)(x[:, :2].contiguous())
        parts = first + second * 2, spread + middle, turned[0], alone, half.float(), complex_.abs()
        sum(part.sum() for part in parts).backward()

    gradients = recorded_gradients(program)
    assert sorted(places(gradients)) == [
        (1, "grad.out[0]"),
        (1, "grad.out[1]"),
        (2, "grad.out[0]"),
        (2, "grad.out[1]"),
        *((call, "grad.out") for call in range(3, 7)),
    ]
    shapes = {place: what[:2] for *place, what in gradients for place in [tuple(place)]}
    assert shapes[3, "grad.out"] == ("float32", (3, 2))
    assert shapes[4, "grad.out"] == ("float32", ())
    assert shapes[5, "grad.out"] == ("bfloat16", (2, 3))
    assert shapes[6, "grad.out"] == ("complex64", (2,))


def test_both_ways_record_the_same(new_writer, monkeypatch) -> None:
    def program() -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Embedding(4, 4, sparse=True))
        x = site(0, model[0])(torch.randn(3, 4))
        x = site(1, model[1])(x)
        table = site(2, model[2])(torch.tensor([1, 1, 3]))
        x[:, :4].mul_(table)
        loss = site(3, functional.mse_loss)(x, torch.zeros(3, 8))
        parameters = [model[0].weight, model[1].weight]
        gradients = site(4, torch.autograd.grad)(loss, parameters, create_graph=True)
        norm = site(5, lambda: sum(gradient.square().sum() for gradient in gradients))()
        site(6, norm.backward)()

    announced, hooked = new_writer(), new_writer()
    record(program, announced)
    without_announcements(monkeypatch)
    record(program, hooked)
    assert announced.tensors == hooked.tensors
    assert announced.values == hooked.values
    assert GRADIENT in {record.role for record in announced.tensors}


def test_a_view_of_what_is_written_later_gets_the_gradient_of_its_new_node(
    recorded_gradients,
) -> None:
    def program() -> None:
        x = torch.ones(4, requires_grad=True) * 1
        view = x[:2]
        x.mul_(3)
        same = site(0, lambda: view)()
        same.sum().backward()

    assert places(recorded_gradients(program)) == [(1, "grad.out")]


def test_a_second_pass_is_recorded_again(recorded_gradients) -> None:
    def program() -> None:
        y = site(0, torch.mul)(torch.ones(2, requires_grad=True), 2)
        loss = y.sum()
        loss.backward(retain_graph=True)
        loss.backward()

    assert places(recorded_gradients(program)) == [(1, "grad.out")] * 2


def test_numbers_of_nodes_that_are_long_gone_are_not_taken_for_those_of_new_ones(
    recorded_gradients, monkeypatch
) -> None:
    ring = 16
    monkeypatch.setattr(native, "REMEMBERED", (ring, 100))

    def program() -> None:
        x = torch.ones(1, requires_grad=True)
        olds = [site(0, torch.mul)(x, 2) for _ in range(3)]
        olds[0].backward(retain_graph=True)
        number = olds[0].grad_fn._sequence_nr()
        for _ in range(number + ring - olds[2].grad_fn._sequence_nr() - 1):
            x * 2
        news = [x * 2, site(1, torch.mul)(x, 3), site(2, torch.mul)(x, 3)]
        assert news[0].grad_fn._sequence_nr() == number + ring
        again = site(3, lambda: olds[2])()
        for tensor in (*news, olds[1], again):
            tensor.backward()

    assert places(recorded_gradients(program)) == [
        (1, "grad.out"),
        (4, "grad.out"),
        (5, "grad.out"),
        (2, "grad.out"),
        (3, "grad.out"),
        (6, "grad.out"),
    ]


def test_only_what_was_forgotten_and_comes_after_all_is_a_failure(writer, monkeypatch) -> None:
    monkeypatch.setattr(native, "REMEMBERED", (4, 8))
    x = torch.ones(1, requires_grad=True)

    def failures(unused: int, used: int) -> int:
        recorder = CallRecorder(writer, 4, threading.get_ident())
        _site.install(recorder)
        try:
            for _ in range(unused):
                site(0, torch.mul)(x, 2)
            for output in [site(0, torch.mul)(x, 2) for _ in range(used)]:
                output.backward()
        finally:
            _site.install(None)
            recorder.close()
        return recorder.failures

    assert failures(unused=200, used=12) == 0
    assert len([record for record in writer.tensors if record.role == GRADIENT]) == 12
    assert failures(unused=0, used=30) == 1
    *_, (_, _, name, text) = writer.marks
    assert (name, text.split(":")[0]) == ("recorder failure", "gradient")


def test_a_capture_that_cannot_be_written_is_a_failure_and_the_pass_runs(tmp_path) -> None:
    writer = new_capture(tmp_path)
    recorder = CallRecorder(writer, 4, threading.get_ident())
    _site.install(recorder)
    x = torch.ones(2, requires_grad=True)
    try:
        for _ in range(2):
            y = site(0, torch.mul)(x, 2)
            y.sum().backward()
            writer.close()
    finally:
        _site.install(None)
        recorder.close()
    assert recorder.failures > 0
    assert x.grad.tolist() == [4.0, 4.0]


def test_torch_announces_nothing_in_a_pause_once_no_gradient_is_awaited(recorder, writer) -> None:
    x = torch.ones(1, requires_grad=True)
    before, waiting = site(0, torch.mul)(x, 2), site(1, torch.mul)(x, 3)
    before.backward()
    recorder.paused = True
    assert announces()
    waiting.backward()
    recorder.paused = True
    assert not announces()
    site(2, torch.mul)(x, 4).backward()
    recorder.paused = False
    assert announces()
    site(3, torch.mul)(x, 5).backward()
    recorder.paused = True
    assert not announces()
    calls = [record.call for record in writer.tensors if record.role == GRADIENT]
    sites = [writer.calls[call]["site"] for call in calls]
    assert sites == [0, 1, 3]


def test_no_gradient_is_kept(recorded_gradients) -> None:
    """Of a layout that was met before, of one that was not, and of a kind that Python reads."""
    kept = []

    def program() -> None:
        for size in (2, 2, 3):
            y = site(0, torch.mul)(torch.ones(size, requires_grad=True), 2)
            gradient = torch.ones(size)
            kept.append(weakref.ref(gradient.untyped_storage()))
            kept.append(weakref.ref(gradient))
            y.backward(gradient)
        table = torch.ones(4, 2, requires_grad=True)
        sparse = torch.sparse_coo_tensor([[1]], torch.ones(1, 2), (4, 2), check_invariants=True)
        kept.append(weakref.ref(sparse))
        site(1, torch.mul)(table, 2).backward(sparse)

    before = live_tensors()
    recorded_gradients(program)
    assert live_tensors() <= before
    assert [reference() for reference in kept] == [None] * len(kept)


def live_tensors() -> int:
    gc.collect()
    return sum(type(item) is torch.Tensor for item in gc.get_objects())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_ends_what_its_parent_began(tmp_path) -> None:
    program = f"""
import os, threading, torch, xorsig
from opguard.core import _site
from opguard.core.recording.recorder import CallRecorder
writer = xorsig.CaptureWriter({str(tmp_path / "rank-0")!r}, {str(tmp_path / "staging")!r},
                              capture_id={CAPTURE_ID!r}, rank=0, regions=4)
recorder = CallRecorder(writer, 4, threading.get_ident())
_site.install(recorder)
x = torch.ones(8, requires_grad=True)
y = _site.site(0, torch.mul)(x, 2)
stop = threading.Event()
def passes():
    while not stop.is_set():
        torch.ones(8, requires_grad=True).mul(2).sum().backward()
threads = [threading.Thread(target=passes, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(30):
    child = os.fork()
    if child == 0:
        recorder.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()
y.sum().backward()
recorder.close()
print(recorder.failures)
"""
    run = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["0"]


def test_what_hooks_of_the_program_make_of_a_gradient_is_what_is_recorded(
    recorded_gradients,
) -> None:
    def program(scale: float) -> None:
        y = site(0, torch.mul)(torch.ones(2, requires_grad=True), 2)
        y.register_hook(lambda gradient: gradient * scale)
        y.sum().backward()

    once, twice = (recorded_gradients(lambda scale=scale: program(scale)) for scale in (1.0, 2.0))
    assert places(once) == places(twice) == [(1, "grad.out")]
    assert once != twice


def test_nodes_of_threads_are_told_apart(recorded_gradients) -> None:
    def tensors(made: list) -> None:
        x = torch.ones(2, requires_grad=True)
        made.extend(x * number for number in range(1, 51))

    def program() -> None:
        # Numbers of nodes begin anew in every thread; two new ones have the same.
        made, elsewhere = [], []
        for into in (made, elsewhere):
            thread = threading.Thread(target=tensors, args=(into,))
            thread.start()
            thread.join()
        assert [t.grad_fn._sequence_nr() for t in made] == [
            t.grad_fn._sequence_nr() for t in elsewhere
        ]
        site(0, lambda: made[20])()
        sum(tensor.sum() for tensor in (*elsewhere, *made)).backward()

    assert places(recorded_gradients(program)) == [(1, "grad.out")]


def test_nodes_of_another_thread_do_not_push_out_those_of_the_recorded_one(
    recorded_gradients,
) -> None:
    def program() -> None:
        made = []
        x = torch.ones(1, requires_grad=True)
        thread = threading.Thread(target=lambda: made.append(x * 1))
        thread.start()
        thread.join()
        outputs = [site(0, lambda: made[0])()]
        outputs += [site(1, torch.mul)(x, 2) for _ in range(9000)]
        sum(outputs).backward()

    gradients = places(recorded_gradients(program))
    assert sorted(gradients) == [(call, "grad.out") for call in range(1, 9002)]


def test_a_pass_in_a_thread_of_the_program_is_counted_and_not_recorded(writer) -> None:
    recorder = CallRecorder(writer, 4, threading.get_ident())
    _site.install(recorder)
    try:
        loss = site(0, torch.mul)(torch.ones(2, requires_grad=True), 2).sum()
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
    finally:
        _site.install(None)
        recorder.close()
    assert [record for record in writer.tensors if record.role == GRADIENT] == []
    assert recorder.elsewhere == 1


def batched_pass() -> None:
    x = torch.ones(3, requires_grad=True)
    y = site(0, torch.mul)(x, x)
    rows = torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)
    assert torch.equal(rows[0], 2 * torch.eye(3))


def test_a_gradient_without_memory_of_its_own_is_named_and_not_read(recorded_gradients) -> None:
    ((call, slot, (dtype, shape, reason)),) = recorded_gradients(batched_pass)
    assert (call, slot, dtype, shape) == (1, "grad.out", "float32", (3,))
    assert "Batched" in reason


def test_exception_of_a_signal_handler_within_a_gradient_reaches_the_program(
    writer, monkeypatch
) -> None:
    class InterruptedPassError(Exception):
        pass

    def handler(*_: object) -> None:
        raise InterruptedPassError

    def interrupted(*_: object) -> None:
        signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr(CallRecorder, "_on_gradient", interrupted)
    recorder = CallRecorder(writer, 4, threading.get_ident())
    _site.install(recorder)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(InterruptedPassError):
            batched_pass()
    finally:
        signal.signal(signal.SIGUSR1, before)
        _site.install(None)
        recorder.close()
    assert recorder.failures == 0


def test_places_of_dead_nodes_are_not_taken_for_those_of_new_ones(recorded_gradients) -> None:
    def program() -> None:
        x = torch.ones(2, requires_grad=True)
        for _ in range(2000):
            y = site(0, torch.mul)(x, 2)
            del y
        gc.collect()
        site(0, torch.mul)(x, 2).sum().backward()

    assert places(recorded_gradients(program)) == [(2001, "grad.out")]


def test_other_hooks_on_a_node_run_and_can_be_removed(recorded_gradients) -> None:
    seen = []

    def program() -> None:
        x = torch.ones(2, requires_grad=True)
        before = torch.mul(x, 2)
        before.grad_fn.register_prehook(lambda gradients: seen.append("before"))
        site(0, lambda: before)()
        after = site(1, torch.mul)(before, 3)
        handle = after.grad_fn.register_prehook(lambda gradients: seen.append("removed"))
        after.grad_fn.register_prehook(lambda gradients: seen.append("after"))
        handle.remove()
        after.sum().backward()

    assert places(recorded_gradients(program)) == [(2, "grad.out"), (1, "grad.out")]
    assert seen == ["after", "before"]


@pytest.mark.parametrize("probes", [native._autograd_probes, list])
def test_hooks_that_outlive_their_nodes_are_not_taken_for_those_of_new_ones(
    probes, writer, monkeypatch
) -> None:
    without_announcements(monkeypatch)
    monkeypatch.setattr(native, "_autograd_probes", probes)
    before = {id(item) for item in gc.get_objects() if is_hooks(item)}
    kept = []

    def program() -> None:
        x = torch.ones(2, requires_grad=True)
        for _ in range(20):
            y = site(0, torch.mul)(x, 2)
            # As programs that look for what holds their memory do.
            hooks = (item for item in gc.get_objects() if is_hooks(item))
            kept.extend(item for item in hooks if id(item) not in before)
            del y
        for _ in range(20):
            site(0, torch.mul)(x, 2).sum().backward()

    record(program, writer)
    assert len({id(item) for item in kept}) == 20
    recorded = [record.call for record in writer.tensors if record.role == GRADIENT]
    assert recorded == list(range(21, 41))


def is_hooks(item: object) -> bool:
    """Whether something is a node's dictionary of hooks with one of the recorder's."""
    if type(item) is not OrderedDict:
        return False
    return any(type(hook).__name__ == "GradientHook" for hook in item.values())
