"""Calls that the native half records: the same records as the Python half, and no others."""

import gc
import operator
import random
import sys
import threading
import types
import weakref

import native_programs
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from opguard.core import _site
from opguard.core._site import site, subscript
from opguard.core.recording import native
from opguard.core.recording.purity import facts
from opguard.core.recording.recorder import CallRecorder
from opguard.core.recording.tensors import TensorReader


def record(program, writer, *, native: bool) -> None:
    """Write into ``writer`` what a recorder records while ``program`` runs."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    recorder = CallRecorder(writer, 4, threading.get_ident(), native=native)
    _site.install(recorder)
    try:
        program()
    finally:
        _site.install(None)
        recorder.close()
    assert recorder.failures == 0, writer.marks
    assert recorder.tensors == len(writer.tensors)
    assert recorder.calls == len(writer.calls)


def forward_and_backward() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    x, target = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    for _ in range(2):
        hidden = site(0, model)(x)
        hidden = site(1, operator.mul)(hidden, 2)
        hidden = site(2, functional.dropout)(hidden, p=0.25, training=True)
        first, *rest = site(3, hidden.split)(1, dim=1)
        hidden = site(4, torch.cat)((first, *rest), dim=-1)
        loss = site(5, functional.cross_entropy)(hidden, target, label_smoothing=0.1)
        site(6, optimizer.zero_grad)()
        site(7, loss.backward)()
        site(8, optimizer.step)()


def arguments_of_every_plain_kind() -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    site(0, x.permute)(2, 0, 1)
    site(0, x.permute)((2, 0, 1))
    site(0, torch.sum)(x, dim=[0, 2], keepdim=True, dtype=torch.float64)
    site(0, torch.full)((2, 2), -0.0)
    site(0, torch.mul)(x, 1e300)
    site(0, torch.arange)(0, 5, device=torch.device("cpu"))
    site(0, torch.einsum)("abc,abc->a", x, x)
    site(0, x.to)(memory_format=torch.contiguous_format, dtype=torch.float16)
    site(0, torch.tensor)([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    site(0, operator.getitem)(x, (0, slice(None, 2), None, ...))
    subscript(0, x)[x > 3]
    site(0, operator.getitem)({"a": x, "b": [x, None, True]}, "a")
    site(0, torch.where)(x > 1, x, float("nan"))
    site(0, x.max)(dim=0)
    site(0, x.size)()
    site(0, x.item if x.numel() == 1 else x[0, 0, 0].item)()
    site(0, torch.stack)([x] * 20)
    site(0, functional.pad)(x, (1, 1))


def tensors_of_every_kind() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    for tensor in (
        x.t(),
        x.expand(4, 2, 3),
        x[:0],
        torch.tensor(3),
        x.bool(),
        torch.complex(x, x).conj(),
        torch.complex(x, x).conj().imag,
        x.to_sparse(),
        torch.ones(3, device="meta"),
        nn.Parameter(x),
        x.as_subclass(type("Tagged", (torch.Tensor,), {})),
    ):
        site(0, torch.clone)(tensor)
    freed = torch.ones(3)
    freed.untyped_storage().resize_(0)
    site(0, operator.getitem)([freed], 0)


def calls_that_write() -> None:
    module = nn.Linear(2, 2)
    site(0, module)(torch.ones(1, 2))
    with torch.no_grad():
        site(1, module.weight.mul_)(2.0)
        site(1, functional.relu)(module.weight, True)
        site(1, functional.relu)(module.weight, inplace=True)
        site(1, torch.add)(module.weight, 1, out=module.weight)
        site(1, operator.iadd)(module.weight, 1.0)
        subscript(1, module.weight)[0] = 0.5
    site(1, functional.embedding)(torch.tensor([0]), module.weight.data, None, 0.1)
    site(1, functional.batch_norm)(torch.randn(4, 2), torch.zeros(2), torch.ones(2), training=True)


def calls_inside_calls() -> None:
    def pack(tensor):
        return site(1, torch.neg)(tensor)

    x = torch.ones(2, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: -tensor):
        y = site(0, torch.mul)(x, x)
    site(2, y.sum().backward)()

    def outer(x):
        return site(1, torch.sin)(x)

    site(0, outer)(x).sum().backward()


def callees_of_one_function_or_class() -> None:
    def twice(item, x):
        return x * 2

    class Plain:
        pass

    x = torch.ones(2)
    first, second = nn.Linear(2, 2), nn.Linear(2, 2).double()
    optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
    for item in (x, Plain(), first, optimizer, torch.zeros(3, dtype=torch.int64), Plain, second):
        site(0, types.MethodType(twice, item))(x)
    for module in (first, second):
        site(1, module.requires_grad_)(True)
        site(2, module(x.to(module.weight.dtype)).sum().backward)()

    class Doubling(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(size))

        def forward(self, x):
            return x * 2 + self.weight

    class Naming(Doubling):
        @property
        def __name__(self):
            return f"naming_{len(self.weight)}"

    small, large, named = Doubling(1), Doubling(2), Doubling(2)
    named.__name__ = "named"
    for module in (small, large, named, large, named, Naming(1), Naming(2)):
        site(4, module)(x)
    site(3, optimizer.step)()
    site(3, torch.optim.SGD(second.parameters(), lr=0.5).step)()


def calls_that_raise() -> None:
    with pytest.raises(RuntimeError):
        site(0, torch.matmul)(torch.ones(2, 3), torch.ones(2, 3))
    site(0, torch.relu)(torch.ones(1))


def transforms() -> None:
    def double(x):
        return site(0, torch.mul)(x, 2.0)

    torch.func.vmap(double)(torch.ones(2, 3))
    torch.func.grad(lambda x: double(x).sum())(torch.ones(3))
    from torch.utils.checkpoint import checkpoint

    def block(x):
        return site(1, torch.sin)(site(1, torch.sin)(x))

    checkpoint(block, torch.ones(2, requires_grad=True), use_reentrant=False).sum().backward()


@pytest.mark.parametrize(
    "program",
    [
        forward_and_backward,
        arguments_of_every_plain_kind,
        tensors_of_every_kind,
        calls_that_write,
        calls_inside_calls,
        calls_that_raise,
        callees_of_one_function_or_class,
        transforms,
        native_programs.modules,
        native_programs.optimizers,
        native_programs.functions_of_the_workload,
    ],
    ids=lambda program: program.__name__,
)
def test_both_halves_write_the_same_records(program, new_writer) -> None:
    native, python = new_writer(), new_writer()
    # From one line, which is a part of the places of steps.
    for writer, natively in ((native, True), (python, False)):
        record(program, writer, native=natively)
    assert len(native.calls) > 0
    assert native.calls == python.calls
    assert native.order == python.order
    assert native.tensors == python.tensors
    assert native.values == python.values
    assert native.marks == python.marks


def test_what_the_workload_drops_is_not_kept_by_what_is_known_of_it(recorder) -> None:
    def calls():
        class Doubling(nn.Module):
            def forward(self, x):
                return x * 2

            def again(self, x):
                return x * 2

        x, module = torch.ones(1), Doubling()
        for _ in range(2):
            site(0, module)(x)
            site(1, module.again)(x)
        return [weakref.ref(Doubling), weakref.ref(Doubling.again)]

    dropped = calls()
    gc.collect()
    assert [reference() for reference in dropped] == [None, None]
    assert recorder.failures == 0


def test_a_proxy_is_what_it_stands_for(recorder, writer) -> None:
    module = nn.Sequential(nn.Identity())

    def plain(x):
        return x

    x = torch.ones(1)
    for callee in (module, plain, module, plain):
        site(0, weakref.proxy(callee))(x)
    assert recorder.failures == 0
    names = [facts["callee"] for facts in writer.calls.values()]
    assert names[:2] == names[2:]


def test_tensors_are_read_without_python_on_this_torch(writer, monkeypatch) -> None:
    reads = []
    # Before the recorder binds it.
    monkeypatch.setattr(TensorReader, "read", lambda *a: reads.append(a))
    recorder = CallRecorder(writer, 4, threading.get_ident())
    _site.install(recorder)
    try:
        site(0, torch.add)(torch.ones(3), nn.Parameter(torch.ones(3)))
    finally:
        _site.install(None)
        recorder.close()
    assert reads == []
    assert len(writer.tensors) == 3


@pytest.mark.parametrize("probes", ["_probes", "_autograd_probes"])
def test_records_are_the_same_where_the_fields_of_tensors_are_not_found(
    probes, new_writer, monkeypatch
) -> None:
    expected, found = new_writer(), new_writer()
    record(forward_and_backward, expected, native=True)
    # No field holds these numbers, as on a torch whose tensors are laid out otherwise.
    moved = [(tensor, number + 1, *rest) for tensor, number, *rest in getattr(native, probes)()]
    monkeypatch.setattr(native, probes, lambda: moved)
    assert_same_records_with_python_reading(expected, found, monkeypatch)


def test_records_are_the_same_on_a_torch_with_which_none_were_made_before(
    new_writer, monkeypatch
) -> None:
    expected, found = new_writer(), new_writer()
    record(forward_and_backward, expected, native=True)
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    monkeypatch.setattr(native, "_autograd_probes", lambda: pytest.fail("functions are called"))
    assert_same_records_with_python_reading(expected, found, monkeypatch)


def assert_same_records_with_python_reading(expected, found, monkeypatch) -> None:
    keys = []
    key = native._key
    monkeypatch.setattr(native, "_key", lambda tensor: keys.append(tensor) or key(tensor))
    record(forward_and_backward, found, native=True)
    assert keys != []
    assert found.calls == expected.calls
    assert found.tensors == expected.tensors
    assert found.values == expected.values


@pytest.mark.parametrize(
    "callee",
    [
        torch.Tensor.add_,
        torch.ones(1).copy_,
        torch.empty,
        torch.empty_like,
        torch.batch_norm,
        torch.instance_norm,
        functional.batch_norm,
        functional.relu_,
        nn.init.zeros_,
        operator.iadd,
        operator.setitem,
        torch.ones(1).backward,
        torch.ones(1).requires_grad_,
        torch.ones(1).set_,
        torch.set_num_threads,
        torch.manual_seed,
        torch.from_numpy,
        torch._foreach_add_,
        torch.compile(torch.relu, backend="eager"),
        len,
        print,
        lambda x: x,
    ],
)
def test_callee_that_may_write_or_do_anything_is_not_pure(callee) -> None:
    assert facts(callee) is None


@pytest.mark.parametrize(
    ("callee", "random"),
    [
        (torch.relu, False),
        (torch.cat, False),
        (torch.ones(1).view, False),
        (torch.Tensor.matmul, False),
        (functional.linear, False),
        (functional.cross_entropy, False),
        (functional.dropout, True),
        (functional.scaled_dot_product_attention, True),
        (torch.randn, True),
        (operator.matmul, False),
    ],
)
def test_callee_that_only_reads_is_pure(callee, random) -> None:
    found = facts(callee)
    assert found is not None
    assert (found.name, found.random) == (callee.__name__, random)


def test_no_method_that_ends_in_an_underscore_is_pure() -> None:
    builtins = (getattr(torch.Tensor, name, None) for name in dir(torch.Tensor))
    pure = [item.__name__ for item in builtins if facts(item) is not None]
    assert len(pure) > 300
    assert [name for name in pure if name.endswith("_") and not name.startswith("__")] == []


def test_metadata_of_autograd_nodes_stay_the_programs_own(recorder) -> None:
    y = site(0, torch.mul)(torch.ones(1, requires_grad=True), 2)
    assert dict(y.grad_fn.metadata) == {}


def test_calls_with_plain_arguments_are_recorded_without_the_python_half(
    recorder, writer, monkeypatch
) -> None:
    monkeypatch.setattr(CallRecorder, "begin", lambda *call: pytest.fail(f"begin{call}"))
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hidden = site(0, model)(torch.ones(1, 2))
    hidden = site(1, lambda x: x * 2)(hidden)
    site(2, hidden.detach().add_)(1.0)
    site(3, optimizer.zero_grad)()
    site(4, hidden.sum().backward)()
    site(5, optimizer.step)()
    names = [facts["callee"] for facts in writer.calls.values()]
    assert names == ["Sequential", "<lambda>", "add_", "zero_grad", "backward", "step"]
    assert "grad.param.0.weight" in writer.slots(5, 3)
    assert "param.0.weight" in writer.slots(6, 1)


def test_gradients_of_parameters_are_looked_at_without_python(writer) -> None:
    recorder = CallRecorder(writer, 4, threading.get_ident())
    model = nn.Linear(2, 2)
    _site.install(recorder)
    try:
        site(0, model)(torch.ones(1, 2))
        asked = []
        sys_trace = sys.getprofile()
        sys.setprofile(lambda frame, event, _: asked.append(frame.f_code.co_name))
        site(1, lambda: model(torch.ones(1, 2)).sum().backward())()
        sys.setprofile(sys_trace)
    finally:
        _site.install(None)
        recorder.close()
    assert "_key" not in asked
    assert {"grad.param.weight", "grad.param.bias"} == set(writer.slots(2, 3))


@pytest.mark.parametrize("native", [True, False])
def test_training_is_bitwise_the_same_while_it_is_recorded(new_writer, native) -> None:
    def train(recorded: bool) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = native_programs.Residual()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        recorder = CallRecorder(new_writer(), 4, threading.get_ident(), native=native)
        _site.install(recorder if recorded else None)
        try:
            for _ in range(3):
                loss = site(0, model)(torch.randn(3, 4))["out"].square().mean()
                site(1, optimizer.zero_grad)()
                site(2, loss.backward)()
                site(3, optimizer.step)()
        finally:
            _site.install(None)
            recorder.close()
        return [*model.state_dict().values(), torch.get_rng_state()]

    plain, traced = train(False), train(True)
    assert all(torch.equal(a, b) for a, b in zip(plain, traced, strict=True))


@pytest.mark.parametrize("native", [True, False])
def test_gradient_of_a_view_is_recorded_whose_base_got_its_node_later(writer, native) -> None:
    recorder = CallRecorder(writer, 4, threading.get_ident(), native=native)
    _site.install(recorder)
    try:
        base = torch.ones(4)
        view = base[:2]
        base.mul_(torch.ones(4, requires_grad=True))
        site(0, operator.getitem)([view], 0).sum().backward()
    finally:
        _site.install(None)
        recorder.close()
    assert [record.slot for record in writer.tensors if record.role == 4] == ["grad.out"]
