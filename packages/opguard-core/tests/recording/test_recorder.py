"""Roles: 0 input, 1 output, 2 effect before, 3 effect after, 4 gradient, 5/6 random streams."""

import gc
import inspect
import operator
import signal
import sys
import threading
import weakref

import pytest
import torch
from torch import nn

from opguard.core import recursion
from opguard.core._site import iterate, site, subscript


def of_call(writer, callee: str, nth: int = 0) -> int:
    return [call for call, facts in writer.calls.items() if facts["callee"] == callee][nth]


def test_call_records_inputs_before_and_outputs_after(recorder, writer) -> None:
    x = torch.arange(4.0)
    y = site(7, torch.mul)(x, 2.0)
    assert torch.equal(y, x * 2)
    assert writer.calls[1] == {
        "parent": 0,
        "site": 7,
        "step": 0,
        "phase": 0,
        "flags": 0,
        "callee": "mul",
        "status": 0,
        "error": "",
    }
    assert list(writer.slots(1, 0)) == ["arg[0]"]
    assert writer.texts(1, 0) == {"value.arg[1]": "2.0"}
    assert list(writer.slots(1, 1)) == ["out"]
    assert writer.slots(1, 0)["arg[0]"][2] != writer.slots(1, 1)["out"][2]


def test_in_place_call_records_its_input_again_only_when_the_bytes_changed(
    recorder, writer
) -> None:
    x = torch.ones(4)
    site(0, x.add_)(1.0)
    site(0, x.add_)(0.0)
    assert set(writer.slots(1, 1)) == {"out", "self"}
    assert set(writer.slots(2, 1)) == {"out"}


def test_overwritten_argument_is_no_input(recorder, writer) -> None:
    x = torch.empty(4)
    site(0, x.fill_)(3.0)
    site(0, torch.add)(torch.ones(4), torch.ones(4), out=x)
    site(0, nn.init.zeros_)(x)
    assert writer.slots(1, 0) == {}
    assert set(writer.slots(2, 0)) == {"arg[0]", "arg[1]"}
    assert writer.slots(3, 0) == {}
    assert "self" in writer.slots(1, 1)
    assert "kwarg.out" in writer.slots(2, 1)


def test_fresh_memory_is_described_but_not_read(recorder, writer) -> None:
    site(0, torch.empty)(3)
    assert writer.slots(1, 1)["out"] == ("float32", (3,), "uninitialised memory")
    assert writer.calls[1]["flags"] & 8


def test_nested_calls_know_their_parent(recorder, writer) -> None:
    def outer(x):
        return site(1, torch.relu)(x) + 1

    site(0, outer)(torch.ones(2))
    assert {call: facts["parent"] for call, facts in writer.calls.items()} == {1: 0, 2: 1}
    assert writer.order == [("begin", 1), ("begin", 2), ("end", 2), ("end", 1)]


def test_exception_passes_unchanged_and_is_recorded(recorder, writer) -> None:
    def fail(x):
        raise FloatingPointError("no")

    with pytest.raises(FloatingPointError, match="no") as caught:
        site(0, fail)(torch.ones(1))
    assert [frame.name for frame in caught.traceback][-1] == "fail"
    assert (writer.calls[1]["status"], writer.calls[1]["error"]) == (1, "FloatingPointError")
    site(0, torch.relu)(torch.ones(1))
    assert writer.calls[2]["parent"] == 0


def test_called_module_has_its_parameters_buffers_and_mode_as_inputs(recorder, writer) -> None:
    module = nn.BatchNorm1d(3)
    site(0, module)(torch.randn(5, 3))
    assert set(writer.slots(1, 0)) == {
        "arg[0]",
        "param.weight",
        "param.bias",
        "buffer.running_mean",
        "buffer.running_var",
        "buffer.num_batches_tracked",
    }
    assert writer.texts(1, 0) == {"value.training": "True"}
    assert set(writer.slots(1, 1)) == {
        "out",
        "buffer.running_mean",
        "buffer.running_var",
        "buffer.num_batches_tracked",
    }
    assert writer.calls[1]["flags"] & 4


def test_child_in_another_mode_is_named(recorder, writer) -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    module[1].eval()
    site(0, module)(torch.ones(1, 2))
    assert writer.texts(1, 0) == {"value.training": "True", "value.training.1": "False"}


def test_parameter_changed_by_a_call_is_an_effect_with_both_sides(recorder, writer) -> None:
    module = nn.Linear(2, 2)
    site(0, module)(torch.ones(1, 2))

    def scale():
        with torch.no_grad():
            module.weight.mul_(2)

    site(1, scale)()
    call = of_call(writer, "scale")
    assert set(writer.slots(call, 2)) == set(writer.slots(call, 3)) == {"param.weight"}
    assert writer.slots(call, 2) != writer.slots(call, 3)


def test_write_through_data_is_seen_although_no_version_moves(recorder, writer) -> None:
    module = nn.Linear(2, 2)
    site(0, module)(torch.ones(1, 2))
    version = module.weight._version
    site(1, module.weight.data.mul_)(2.0)
    assert module.weight._version == version
    assert "param.weight" in writer.slots(2, 3)


def test_backward_has_old_gradients_as_inputs_and_new_ones_as_effects(recorder, writer) -> None:
    module = nn.Linear(2, 1)
    loss = site(0, module)(torch.ones(1, 2)).sum()
    site(1, loss.backward)()
    call = of_call(writer, "backward")
    assert writer.texts(call, 0)["grad.param.weight"] == "None"
    assert set(writer.slots(call, 3)) == {"grad.param.weight", "grad.param.bias"}
    assert writer.texts(call, 2) == {"grad.param.weight": "None", "grad.param.bias": "None"}


def test_clipping_reads_the_gradients_that_its_generator_argument_hides(recorder, writer) -> None:
    module = nn.Linear(2, 1)
    site(0, module)(torch.ones(1, 2)).sum().backward()
    site(1, nn.utils.clip_grad_norm_)(module.parameters(), 1e9)
    call = of_call(writer, "clip_grad_norm_")
    assert set(writer.slots(call, 0)) == {"grad.param.weight", "grad.param.bias"}
    assert writer.slots(call, 3) == {}


def test_dropping_gradients_does_not_read_them(recorder, writer) -> None:
    module = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    site(0, module)(torch.ones(1, 2)).sum().backward()
    site(1, optimizer.zero_grad)()
    call = of_call(writer, "zero_grad")
    assert writer.slots(call, 0) == {}
    assert writer.texts(call, 3) == {"grad.param.weight": "None", "grad.param.bias": "None"}


def test_gradient_of_an_output_is_recorded_under_its_forward_call(recorder, writer) -> None:
    x = torch.ones(3, requires_grad=True)
    y = site(0, torch.mul)(x, 3.0)
    site(1, y.sum().backward)()
    assert writer.slots(1, 4)["grad.out"][:2] == ("float32", (3,))
    assert writer.slots(1, 4)["grad.out"][2] == writer_signature(torch.ones(3))


def writer_signature(tensor: torch.Tensor) -> bytes:
    from opguard.core.fingerprint import signature_bytes

    return signature_bytes(tensor, 4)


def test_gradient_seen_by_nested_calls_is_recorded_for_each(recorder, writer) -> None:
    def outer(x):
        return site(1, torch.sin)(x)

    x = torch.ones(3, requires_grad=True)
    site(0, outer)(x).sum().backward()
    assert set(writer.slots(1, 4)) == set(writer.slots(2, 4)) == {"grad.out"}


def test_settings_that_are_tensors_are_numbers_on_the_host_and_fingerprints_elsewhere(
    recorder, writer
) -> None:
    """A number on a device would have to be waited for."""

    class Still(torch.optim.Optimizer):
        def step(self) -> None:
            pass

    weights = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = Still([{"params": [weight]} for weight in weights], {"lr": torch.tensor(0.5)})
    optimizer.param_groups[1]["lr"] = torch.tensor(0.5, device="meta")
    site(0, optimizer.step)()
    assert writer.texts(1, 0)["value.group[0].lr"] == "0.5"
    assert "value.group[1].lr" not in writer.texts(1, 0)
    assert writer.slots(1, 0)["state.group[1].lr"][:2] == ("float32", ())


def test_optimizer_step_has_parameters_gradients_state_and_settings(recorder, writer) -> None:
    module = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        site(0, module)(torch.ones(1, 2)).sum().backward()
        site(1, optimizer.step)()
    second = of_call(writer, "step", 1)
    assert writer.calls[second]["phase"] == 2
    assert set(writer.slots(second, 0)) == {
        "param.weight",
        "grad.param.weight",
        "state.weight.momentum_buffer",
    }
    assert set(writer.slots(second, 1)) == {"param.weight", "state.weight.momentum_buffer"}
    texts = writer.texts(second, 0)
    assert texts["value.group[0].lr"] == "0.5"
    assert texts["value.param.weight.group"] == "0"
    assert [mark[:2] for mark in writer.marks] == [(0, 1), (0, 2)]


def test_gradient_written_through_data_is_an_effect_and_reaches_the_step(recorder, writer) -> None:
    module = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    site(0, module)(torch.full((1, 2), 9.0)).sum().backward()
    site(1, module.weight.grad.data.clamp_)(max=1.0)
    site(2, optimizer.step)()
    clamp, step = of_call(writer, "clamp_"), of_call(writer, "step")
    assert set(writer.slots(clamp, 3)) == {"grad.param.weight"}
    assert writer.slots(step, 0)["grad.param.weight"][2] == writer_signature(torch.ones(1, 2))


def test_optimizer_step_that_raises_leaves_later_calls_in_their_phase(recorder, writer) -> None:
    module = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def closure():
        raise ValueError("no loss")

    with pytest.raises(ValueError, match="no loss"):
        site(0, optimizer.step)(closure)
    site(1, torch.relu)(torch.ones(1))
    assert writer.calls[of_call(writer, "relu")]["phase"] == 0


def test_next_optimizer_is_the_clock_when_the_first_is_gone(recorder, writer) -> None:
    for _ in range(2):
        module = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        module(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        del module, optimizer
        gc.collect()
    assert recorder.step == 2


def test_disabled_function_does_not_count_as_compiled(recorder, writer) -> None:
    site(0, torch.compiler.disable(torch.relu))(torch.ones(1))
    site(0, torch.compile(torch.relu, backend="eager"))(torch.ones(1))
    assert [facts["flags"] & 1 for facts in writer.calls.values()] == [0, 1]


def test_text_and_number_of_the_same_spelling_are_different_values(recorder, writer) -> None:
    site(0, lambda a, b: None)("1", 1)
    assert writer.texts(1, 0) == {"value.arg[0]": "'1'", "value.arg[1]": "1"}


@pytest.mark.parametrize("native", [True, False])
def test_call_whose_inputs_cannot_be_recorded_adopts_no_later_call(
    writer, monkeypatch, native
) -> None:
    from opguard.core import _site
    from opguard.core.recording.random_state import RandomState
    from opguard.core.recording.recorder import CallRecorder

    monkeypatch.setattr(RandomState, "python_source", lambda self: 1 / 0)
    recorder = CallRecorder(writer, 4, threading.get_ident(), native=native)
    _site.install(recorder)

    def double(x):
        return x * 2

    try:
        site(0, double)(torch.ones(1))
        site(0, double)(torch.ones(1))
    finally:
        _site.install(None)
        recorder.close()
    assert [facts["parent"] for facts in writer.calls.values()] == [0, 0]
    assert [facts["error"] for facts in writer.calls.values()] == ["_NotFollowed"] * 2
    assert recorder.failures == 2


def test_first_optimizer_to_step_is_the_clock(recorder, writer) -> None:
    modules = [nn.Linear(1, 1), nn.Linear(1, 1)]
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for module in modules]
    for _ in range(3):
        for module, optimizer in zip(modules, optimizers, strict=True):
            module(torch.ones(1, 1)).sum().backward()
            optimizer.step()
    assert recorder.step == 3


def test_call_that_draws_random_numbers_records_the_stream_around_it(recorder, writer) -> None:
    torch.manual_seed(0)
    site(0, torch.rand)(3)
    site(0, torch.relu)(torch.ones(1))
    assert set(writer.texts(1, 5)) == set(writer.texts(1, 6)) == {"rng.torch"}
    assert writer.texts(1, 5) != writer.texts(1, 6)
    assert writer.texts(2, 5) == {}


MOVES = {
    "uniform": lambda: torch.rand(2),
    "normal": lambda: torch.randn(1),
    "normal, double": lambda: torch.randn(1, dtype=torch.float64),
    "permutation": lambda: torch.randperm(4),
    "dropout": lambda: nn.functional.dropout(torch.ones(3), 0.5),
    "seed": lambda: torch.manual_seed(11),
    "state": lambda: torch.set_rng_state(torch.Generator().manual_seed(12).get_state()),
    "nothing": lambda: torch.ones(2),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_stream_of_torch_is_what_its_generator_says(recorder, writer, move) -> None:
    """Natively its state is asked for only where the bytes of the generator changed."""
    from opguard.core.recording.random_state import RandomState

    def user():
        return move()

    def digest():
        return RandomState().digests(False)["rng.torch"]

    torch.manual_seed(0)
    torch.randn(1)
    site(0, user)()
    for call in (2, 3):
        before = digest()
        site(0, user)()
        after = digest()
        moved = {"rng.torch": before}, {"rng.torch": after}
        found = writer.texts(call, 5), writer.texts(call, 6)
        assert found == (moved if before != after else ({}, {}))


def test_bytes_behind_a_generator_tell_whether_it_moved() -> None:
    """Without that, the state of torch's generator would be asked for at every call."""
    import ctypes

    from opguard.core.recording import native

    if not native._is_tested():
        pytest.skip(f"torch {torch.__version__} is read through Python")
    _, address, moves, looks = native._generator_probes()
    libc = ctypes.CDLL(None)
    libc.malloc_usable_size.restype = ctypes.c_size_t
    size = libc.malloc_usable_size(ctypes.c_void_p(address))

    def now() -> bytes:
        return ctypes.string_at(address, size)

    for functions, moving in ((moves, True), (looks, False)):
        for function in functions:
            before = now()
            function()
            assert (now() != before) is moving


def test_recording_moves_no_random_stream(recorder) -> None:
    import random

    import numpy

    random.seed(1)
    numpy.random.seed(2)
    torch.manual_seed(3)
    before = (random.getstate(), numpy.random.get_state()[1].tobytes(), torch.get_rng_state())

    def user(x):
        return x + 1

    site(0, user)(torch.ones(2))
    after = (random.getstate(), numpy.random.get_state()[1].tobytes(), torch.get_rng_state())
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])


def test_python_and_numpy_streams_are_told_apart(recorder, writer) -> None:
    import random

    import numpy

    site(0, lambda: random.random())()
    site(0, lambda: numpy.random.rand())()
    assert set(writer.texts(1, 5)) == {"rng.python"}
    assert set(writer.texts(2, 5)) == {"rng.numpy"}


def test_other_threads_run_unrecorded(recorder, writer) -> None:
    results = []
    thread = threading.Thread(target=lambda: results.append(site(0, torch.relu)(-torch.ones(1))))
    thread.start()
    thread.join()
    assert results == [torch.zeros(1)]
    assert writer.calls == {}
    assert recorder.elsewhere == 1


def test_subscripts_and_iteration_keep_their_meaning(recorder, writer) -> None:
    x = torch.arange(6.0).reshape(3, 2)
    assert torch.equal(subscript(0, x)[1], x[1])
    subscript(1, x)[0, 1] = 9.0
    assert x[0, 1] == 9
    mapping = {"a": 1}
    del subscript(2, mapping)["a"]
    assert mapping == {}
    assert [row.tolist() for row in iterate(3, x)] == x.tolist()
    (first, *_) = (call for call, facts in writer.calls.items() if facts["callee"] == "_unchanged")
    assert writer.slots(first, 0)["arg[0]"] == writer.slots(first, 1)["out"]
    names = [facts["callee"] for facts in writer.calls.values()]
    assert names[:4] == ["getitem", "setitem", "delitem", "iter"]
    assert set(writer.slots(2, 1)) == {"arg[0]"}


def test_no_tensor_is_kept_alive(recorder) -> None:
    x = torch.ones(4, requires_grad=True)
    y = site(0, operator.mul)(x, x)
    y.sum().backward()
    refs = [weakref.ref(x), weakref.ref(y)]
    del x, y
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_user_modes_and_subclasses_do_not_see_the_recorder(recorder) -> None:
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen += 1
            return func(*args, **(kwargs or {}))

    class CountFunctions(TorchFunctionMode):
        seen = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen += 1
            return func(*args, **(kwargs or {}))

    x = torch.ones(3, 4).t()
    with Count() as count, CountFunctions() as functions:
        site(0, torch.relu)(x)
    assert (count.seen, functions.seen) == (1, 1)


def test_checkpoint_recomputation_is_recorded_as_such(recorder, writer) -> None:
    from torch.utils.checkpoint import checkpoint

    def block(x):
        return site(1, torch.sin)(site(1, torch.sin)(x))

    x = torch.ones(2, requires_grad=True)
    checkpoint(block, x, use_reentrant=False).sum().backward()
    phases = [facts["phase"] for facts in writer.calls.values()]
    assert phases == [0, 0, 1, 1]
    assert all(facts["status"] == 0 for facts in writer.calls.values())


def test_shared_parameter_keeps_both_slots(recorder, writer) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(2, 2, bias=False)
            self.b = self.a

        def forward(self, x):
            return self.b(self.a(x))

    site(0, Tied())(torch.ones(1, 2))
    assert set(writer.slots(1, 0)) == {"arg[0]", "param.a.weight", "param.b.weight"}


def test_failure_of_the_recorder_never_reaches_the_workload(writer) -> None:
    from opguard.core import _site
    from opguard.core.recording.recorder import CallRecorder

    recorder = CallRecorder(writer, 4, threading.get_ident())
    _site.install(recorder)
    try:

        class Hostile:
            @property
            def __dict__(self):
                raise RuntimeError("hostile")

            def __call__(self):
                return 5

        assert site(0, Hostile())() == 5
        assert site(0, lambda h: 6)(type("H", (), {"__class__": property(lambda s: 1 / 0)})()) == 6
    finally:
        _site.install(None)
        recorder.close()
    assert recorder.failures > 0
    assert writer.marks[0][2] == "recorder failure"


def test_numbers_that_a_workload_function_returns_are_not_recorded(recorder, writer) -> None:
    def timed(x):
        return x * 2, 0.25, "/tmp/a"

    site(0, timed)(torch.ones(2))
    site(0, torch.ones(1).item)()
    assert list(writer.slots(1, 1)) == ["out[0]"]
    assert writer.texts(1, 1) == {}
    assert writer.texts(2, 1) == {"out": "1.0"}


def test_loop_keeps_no_item_alive(recorder) -> None:
    def dead_in_the_body(items):
        found = []
        for item in iterate(0, items):
            reference = weakref.ref(item)
            del item
            found.append(reference() is None)
        return found

    assert dead_in_the_body(torch.ones(1) * n for n in range(2)) == [True, True]


def test_parameters_can_be_swapped(recorder) -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    loose = nn.Parameter(torch.ones(2))
    site(0, module)(torch.ones(2))
    loose.grad = torch.ones(2)
    optimizer = torch.optim.SGD([loose], lr=0.1)
    site(1, optimizer.step)()
    other = nn.Parameter(torch.zeros(2, 2))
    torch.utils.swap_tensors(module[0].weight, other)
    torch.utils.swap_tensors(loose, nn.Parameter(torch.zeros(2)))
    assert torch.equal(site(0, module)(torch.ones(2)), module[0].bias)


@pytest.mark.parametrize("native", [True, False])
def test_exception_of_a_signal_handler_reaches_the_workload(writer, monkeypatch, native) -> None:
    from opguard.core import _site
    from opguard.core.recording.random_state import RandomState
    from opguard.core.recording.recorder import CallRecorder

    class TimeLimitError(Exception):
        pass

    def handler(*_):
        raise TimeLimitError

    def interrupted(*_):
        signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr(RandomState, "python_source", interrupted)
    recorder = CallRecorder(writer, 4, threading.get_ident(), native=native)
    _site.install(recorder)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(TimeLimitError):
            site(0, lambda x: x)(torch.ones(1))
    finally:
        signal.signal(signal.SIGUSR1, before)
        _site.install(None)
        recorder.close()
    assert recorder.failures == 0


def test_deep_recursion_through_a_callsite_runs(recorder, writer) -> None:
    def count(n, x):
        return x if n == 0 else site(0, count)(n - 1, x)

    before = sys.getrecursionlimit()
    recursion.make_room()
    try:
        assert sys.getrecursionlimit() == before
        depth = before - len(inspect.stack()) - 20
        assert site(0, count)(depth, torch.ones(1)).item() == 1
    finally:
        recursion.give_back_room()
    assert sys.getrecursionlimit() == before
    assert len(writer.calls) == recursion.MAX_NESTED_CALLS
    site(1, torch.relu)(torch.ones(1))
    assert writer.calls[recursion.MAX_NESTED_CALLS + 1]["parent"] == 0


def test_compiler_that_gives_up_on_a_frame_compiles_what_the_frame_calls(recorder) -> None:
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def block(x):
        return site(2, torch.sin)(x) + 1

    def model(x):
        for _ in range(2):
            x = site(1, block)(x)
            torch._dynamo.graph_break()
        return x

    expected = torch.sin(torch.sin(torch.ones(2)) + 1) + 1
    assert torch.equal(site(0, torch.compile(model, backend=backend))(torch.ones(2)), expected)
    assert len(graphs) == 1


def test_methods_of_container_subclasses_are_not_called(recorder, writer) -> None:
    class Watched(list):
        def __iter__(self):
            raise AssertionError

        __len__ = __iter__

    class WatchedDict(dict):
        def items(self):
            raise AssertionError

    def first(rows, table):
        return rows[0] + table["a"]

    site(0, first)(Watched([torch.ones(1)]), WatchedDict(a=torch.ones(1)))
    assert set(writer.slots(1, 0)) == {"arg[0][0]", "arg[1].a"}


def test_symbolic_trace_gives_the_graph_of_the_plain_module(recorder) -> None:
    class Plain(nn.Module):
        def forward(self, x):
            return torch.relu(x.sin() * 2)

    class Instrumented(nn.Module):
        def forward(self, x):
            return site(3, torch.relu)(site(2, operator.mul)(site(1, x.sin)(), 2))

    plain, instrumented = torch.fx.symbolic_trace(Plain()), torch.fx.symbolic_trace(Instrumented())
    assert str(plain.graph) == str(instrumented.graph)


def test_parameters_of_fresh_memory_are_not_read(recorder, writer) -> None:
    module = nn.Linear(2, 2, device="meta")
    site(0, module)(torch.ones(1, 2, device="meta"))
    site(1, module.to_empty)(device="cpu")
    assert not any(record.call == 2 and record.role > 0 for record in writer.tensors)
