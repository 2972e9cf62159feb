"""Operators inside calls of depth ``aten``. Callsite 7 has that depth, the others have not."""

from __future__ import annotations

import json
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.fsdp  # defines operators
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from opguard.core import _site
from opguard.core._site import site

DEEP, PLAIN = 7, 3
INPUT, OUTPUT = 0, 1
FORWARD, BACKWARD, OPTIMIZER = range(3)

LIBRARY = """\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        hidden = self.linear(x)
        return hidden.tanh()


def train(net, optimizer, x, steps=1):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
"""


@pytest.fixture
def library(tmp_path: Path) -> Iterator[types.ModuleType]:
    """An installed library, in a folder of its own."""
    (tmp_path / "smalllib").mkdir()
    (tmp_path / "smalllib" / "__init__.py").write_text("")
    (tmp_path / "smalllib" / "net.py").write_text(LIBRARY)
    sys.path.insert(0, str(tmp_path))
    import smalllib.net

    yield smalllib.net
    sys.path.remove(str(tmp_path))
    for name in ("smalllib", "smalllib.net"):
        del sys.modules[name]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return tmp_path / "capture"


@pytest.fixture
def recorder(writer: Any, capture: Path) -> Iterator[Any]:
    from opguard.core.recording.recorder import CallRecorder

    recorder = CallRecorder(writer, 4, threading.get_ident(), deep={DEEP}, capture=capture)
    _site.install(recorder)
    yield recorder
    _site.install(None)
    recorder.close()
    assert recorder.failures == 0, writer.marks
    assert torch._C._len_torch_dispatch_stack() == 0


def operators(writer: Any) -> list[str]:
    """Names of the recorded operators, in order."""
    return [f["callee"].partition("@")[0] for f in writer.calls.values() if f["flags"] & 16]


def call_of(writer: Any, name: str, nth: int = 0) -> int:
    found = [c for c, f in writer.calls.items() if f["callee"].partition("@")[0] == name]
    return found[nth]


def places(writer: Any) -> dict[str, dict[str, Any]]:
    return {name: json.loads(text) for kind, _, name, text in writer.marks if kind == 4}


def lines(writer: Any, call: int) -> list[str]:
    """``file:line`` of an operator's places, the innermost first."""
    known, number, found = places(writer), writer.calls[call]["callee"].partition("@")[2], []
    while number != "0":
        place = known[number]
        found.append(f"{place['name']}:{place['position'][0]}")
        number = str(place["outer"])
    return found


def test_operators_are_children_of_the_call_with_the_lines_of_the_library(
    recorder: Any, writer: Any, library: Any
) -> None:
    net = library.Net()
    site(DEEP, net)(torch.ones(2, 3))

    addmm, tanh = call_of(writer, "aten::addmm"), call_of(writer, "aten::tanh")
    assert writer.calls[addmm]["parent"] == 1
    assert writer.calls[addmm]["site"] == DEEP
    inner, outer = lines(writer, addmm)
    assert inner.startswith("torch/nn/modules/linear.py:")
    assert outer == "smalllib/net.py:10"
    assert lines(writer, tanh) == ["smalllib/net.py:11"]
    assert writer.slots(tanh, INPUT)["arg[0]"] == writer.slots(addmm, OUTPUT)["out"]


def test_source_of_the_library_is_kept_under_its_digest(
    recorder: Any, writer: Any, library: Any, capture: Path
) -> None:
    site(DEEP, library.Net())(torch.ones(2, 3))

    place = next(p for p in places(writer).values() if p["name"] == "smalllib/net.py")
    assert (capture / "libraries" / place["source"]).read_text() == LIBRARY
    assert place["qualname"] == "Net.forward"
    assert recorder.packages == {"smalllib", "torch"}


def test_operators_outside_calls_of_that_depth_are_not_recorded(recorder: Any, writer: Any) -> None:
    x = torch.ones(3)
    site(PLAIN, torch.tanh)(x).exp()

    assert operators(writer) == []


def test_a_recorded_call_inside_stands_for_its_own_operators(recorder: Any, writer: Any) -> None:
    def library(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        return site(PLAIN, torch.tanh)(y).neg()

    site(DEEP, library)(torch.ones(3))

    assert operators(writer) == ["aten::exp", "aten::neg"]
    assert [f["callee"] for f in writer.calls.values() if not f["flags"] & 16] == [
        "library",
        "tanh",
    ]


def test_backward_operators_have_the_line_of_their_forward(
    recorder: Any, writer: Any, library: Any
) -> None:
    net = library.Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    site(DEEP, library.train)(net, optimizer, torch.ones(2, 3))

    backward = call_of(writer, "aten::tanh_backward")
    assert writer.calls[backward]["phase"] == BACKWARD
    assert lines(writer, backward) == lines(writer, call_of(writer, "aten::tanh"))
    assert lines(writer, call_of(writer, "aten::mm"))[-2:] == [
        "smalllib/net.py:10",
        "smalllib/net.py:17",
    ]


def test_backward_operators_of_an_unrecorded_forward_are_left_out(
    recorder: Any, writer: Any
) -> None:
    x = torch.ones(3, requires_grad=True)
    loss = x.exp().sum()
    site(DEEP, lambda: loss.backward())()

    assert operators(writer) == ["aten::ones_like"]
    assert torch.equal(x.grad, x.detach().exp())


def test_compiled_code_inside_is_compiled_and_its_operators_are_left_out(
    recorder: Any, writer: Any
) -> None:
    compiled = torch.compile(lambda x: x.sin() + 1, backend="aot_eager", fullgraph=True)

    def library() -> torch.Tensor:
        return compiled(torch.ones(3)).exp()

    site(DEEP, library)()

    assert operators(writer) == ["aten::ones", "aten::exp"]


def test_each_optimizer_step_of_a_library_is_a_call_of_its_own(
    recorder: Any, writer: Any, library: Any
) -> None:
    net = library.Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    site(DEEP, library.train)(net, optimizer, torch.ones(2, 3), steps=2)

    steps = [call_of(writer, "SGD.step", n) for n in range(2)]
    assert [writer.calls[s]["step"] for s in steps] == [0, 1]
    assert [writer.calls[s]["phase"] for s in steps] == [OPTIMIZER] * 2
    assert "param.linear.weight" in writer.slots(steps[0], INPUT)
    weight = "param.linear.weight"
    assert writer.slots(steps[0], OUTPUT)[weight] == writer.slots(steps[1], INPUT)[weight]
    assert writer.slots(1, INPUT).keys().isdisjoint({weight, "grad.param.linear.weight"})
    inner = [f for f in writer.calls.values() if f["parent"] == steps[0]]
    assert {f["callee"].partition("@")[0] for f in inner} == {"aten::add_.Tensor"}


def test_overwritten_arguments_are_no_inputs_and_written_ones_are_outputs(
    recorder: Any, writer: Any
) -> None:
    def library() -> None:
        x = torch.empty(4)
        x.normal_()
        torch.add(x, 1.0, out=torch.empty(4))
        x.mul_(2.0)
        torch._foreach_mul_([x], 3.0)

    site(DEEP, library)()

    normal, add = call_of(writer, "aten::normal_"), call_of(writer, "aten::add.out")
    multiply = call_of(writer, "aten::mul_.Tensor")
    foreach = call_of(writer, "aten::_foreach_mul_.Scalar")
    assert writer.slots(normal, INPUT) == {}
    assert set(writer.slots(normal, OUTPUT)) == {"out"}
    assert set(writer.slots(add, INPUT)) == {"arg[0]"}
    assert set(writer.slots(multiply, INPUT)) == {"arg[0]"}
    assert set(writer.slots(foreach, OUTPUT)) == {"arg[0][0]"}
    assert {r.slot for r in writer.values if r.call == normal} == {"rng.torch"}


def test_memory_that_nobody_wrote_is_described_only_until_all_of_it_is_written(
    recorder: Any, writer: Any
) -> None:
    def library() -> None:
        buffer = torch.empty(8)
        left, right = buffer[:4], buffer[4:]
        left.fill_(1.0)
        buffer.view(2, 4)
        right.fill_(2.0)
        buffer.view(8, 1)

    site(DEEP, library)()

    unwritten = "uninitialised memory"
    outputs = {
        f"{name}{n}": writer.slots(call_of(writer, name, n), OUTPUT)["out"][2]
        for name, n in [("aten::empty.memory_format", 0), ("aten::slice.Tensor", 0),
                        ("aten::view", 0), ("aten::view", 1), ("aten::fill_.Scalar", 0)]
    }  # fmt: skip
    assert outputs["aten::empty.memory_format0"] == unwritten
    assert outputs["aten::slice.Tensor0"] == unwritten
    assert outputs["aten::view0"] == unwritten
    assert isinstance(outputs["aten::view1"], bytes)
    assert isinstance(outputs["aten::fill_.Scalar0"], bytes)


def test_memory_that_an_operator_fills_in_part_without_saying_so_stays_unwritten(
    recorder: Any, writer: Any
) -> None:
    part = torch.arange(3.0)

    def library() -> None:
        # As fully sharded training gathers: its own third is filled, the others come later.
        torch.ops.fsdp.all_gather_copy_in([part], torch.empty(9), [3], 3, 1)

    site(DEEP, library)()

    outputs = writer.slots(call_of(writer, "fsdp::all_gather_copy_in"), OUTPUT)
    assert isinstance(outputs["out[0]"][2], bytes)
    assert outputs["out[1]"][2] == "uninitialised memory"


def test_memory_that_was_given_back_and_taken_again_is_unwritten(
    recorder: Any, writer: Any
) -> None:
    kept = torch.arange(8.0)

    def library() -> None:
        kept.view(2, 4)
        storage = kept.untyped_storage()
        storage.resize_(0)
        storage.resize_(32)
        kept.view(4, 2)
        kept[:4].fill_(1.0)
        kept[:4].view(2, 2)
        kept.fill_(2.0)
        kept.view(8, 1)
        storage.resize_(64)
        kept.view(1, 8)

    site(DEEP, library)()

    inputs = [
        next(iter(writer.slots(call_of(writer, "aten::view", n), INPUT).values()))[2]
        for n in range(5)
    ]
    assert [isinstance(found, bytes) for found in inputs] == [True, False, True, True, True]
    assert inputs[1] == "uninitialised memory"
    recorder.close()
    assert "resize_" not in vars(torch.UntypedStorage)


def test_a_replacement_of_resize_by_the_workload_stays(
    recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resize_(*arguments: Any) -> Any:
        return original(*arguments)

    original = torch.UntypedStorage.resize_
    monkeypatch.setattr(torch.UntypedStorage, "resize_", resize_)
    site(DEEP, torch.ones)(1)
    assert torch.UntypedStorage.resize_ is not resize_
    recorder.close()
    assert torch.UntypedStorage.resize_ is resize_


def test_workspace_of_a_recurrent_layer_is_neither_result_nor_input(
    recorder: Any, writer: Any
) -> None:
    lstm = nn.LSTM(4, 4)
    x = torch.ones(3, 1, 4)

    def library() -> None:
        lstm(x)[0].sum().backward()

    site(DEEP, library)()

    names = operators(writer)
    if "aten::mkldnn_rnn_layer" not in names:
        pytest.skip("this build of torch has no recurrent layers of oneDNN")
    forward = call_of(writer, "aten::mkldnn_rnn_layer")
    backward = call_of(writer, "aten::mkldnn_rnn_layer_backward")
    workspace = writer.slots(forward, OUTPUT)["out[3]"][2]
    assert workspace == "workspace of the operator"
    assert len(writer.slots(backward, INPUT)) < len(writer.slots(forward, INPUT)) + 12
    assert "workspace" not in str(writer.slots(backward, INPUT))


def test_fast_path_of_the_encoder_is_taken_as_without_a_recorder(
    recorder: Any, writer: Any
) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1).eval()
    x = torch.ones(2, 3, 8)
    with torch.inference_mode():
        expected = encoder(x)
        found = site(DEEP, encoder)(x)

    assert torch.equal(found, expected)
    assert "aten::_transformer_encoder_layer_fwd" in operators(writer)


def test_values_and_random_numbers_are_those_of_an_unrecorded_run(
    recorder: Any, writer: Any, library: Any
) -> None:
    def run(wrap: Any) -> tuple[list[torch.Tensor], torch.Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(library.Net(), nn.Dropout(0.5), library.Net())
        optimizer = torch.optim.AdamW(net.parameters())
        wrap(library.train)(net, optimizer, torch.ones(4, 3), 3)
        return [p.detach().clone() for p in net.parameters()], torch.get_rng_state()

    plain, plain_state = run(lambda function: function)
    traced, traced_state = run(lambda function: site(DEEP, function))

    assert operators(writer)
    assert all(map(torch.equal, plain, traced))
    assert torch.equal(plain_state, traced_state)


def test_modes_of_the_workload_keep_seeing_operators(recorder: Any, writer: Any) -> None:
    class Counting(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += 1
            return func(*args, **(kwargs or {}))

    outer, inner = Counting(), Counting()
    with outer:
        site(DEEP, torch.tanh)(torch.ones(3))
        seen = outer.count
        site(DEEP, inner.__enter__)()
        torch.ones(2)
        inner.__exit__(None, None, None)

    assert (seen, inner.count, outer.count) == (2, 1, 3)


def test_error_of_an_operator_reaches_the_workload_and_is_recorded(
    recorder: Any, writer: Any
) -> None:
    def library() -> None:
        torch.ones(2) @ torch.ones(3)

    with pytest.raises(RuntimeError, match="size"):
        site(DEEP, library)()

    failed = [f for f in writer.calls.values() if f["error"]]
    assert [f["callee"].partition("@")[0] for f in failed] == ["library", "aten::dot"]


def test_operators_of_other_threads_run_unrecorded(recorder: Any, writer: Any) -> None:
    def library() -> None:
        thread = threading.Thread(target=lambda: torch.ones(3).cos())
        thread.start()
        thread.join()

    site(DEEP, library)()

    assert operators(writer) == []


def test_operators_of_a_transform_are_recorded_as_they_run_in_the_end(
    recorder: Any, writer: Any
) -> None:
    def library() -> torch.Tensor:
        return torch.func.vmap(torch.sin)(torch.ones(3, 2))

    site(DEEP, library)()

    assert writer.slots(call_of(writer, "aten::sin"), INPUT)["arg[0]"][:2] == ("float32", (3, 2))


def test_checkpointed_recomputation_has_the_lines_of_the_forward(
    recorder: Any, writer: Any, library: Any
) -> None:
    net = library.Net()
    x = torch.ones(2, 3, requires_grad=True)

    def run() -> None:
        y = torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False)
        y.sum().backward()

    site(DEEP, run)()

    first, again = (call_of(writer, "aten::tanh", n) for n in range(2))
    assert [writer.calls[c]["phase"] for c in (first, again)] == [FORWARD, BACKWARD]
    assert lines(writer, again)[0] == lines(writer, first)[0] == "smalllib/net.py:11"
