"""Control flow of one process that tracers trip over; prints digests of everything it computes."""

import asyncio
import contextlib
import hashlib
import random
import sys
import threading
import warnings

import numpy
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def show(name, *values):
    """Print a digest of tensors, or the text of anything else."""
    state = hashlib.sha256()
    for value in values:
        if isinstance(value, torch.Tensor):
            value = value.detach().contiguous().numpy().tobytes()
        state.update(value if isinstance(value, bytes) else repr(value).encode())
    print(f"{name} {state.hexdigest()[:16]}", flush=True)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return x + functional.dropout(torch.tanh(self.norm(self.inner(x))), 0.1, self.training)


def checkpoints():
    for reentrant in (True, False):
        torch.manual_seed(1)
        blocks = nn.Sequential(Block(6), Block(6), Block(6))
        x = torch.randn(5, 6, requires_grad=True)
        y = checkpoint(blocks[0], x, use_reentrant=reentrant)
        y = checkpoint(lambda t, blocks=blocks: blocks[1](t) * 2, y, use_reentrant=reentrant)
        y = checkpoint_sequential(blocks, 2, y, use_reentrant=reentrant)
        y.square().mean().backward()
        show(f"checkpoint {reentrant}", x.grad, *[p.grad for p in blocks.parameters()])


def accumulation():
    torch.manual_seed(2)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=6)
    for step in range(4):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        for _ in range(3):
            (model(torch.randn(2, 4)).square().mean() / 3).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        schedule.step()
    closure = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def evaluate():
        closure.zero_grad()
        loss = model(torch.ones(2, 4)).square().sum()
        loss.backward()
        return loss

    show("accumulation", closure.step(evaluate), *model.parameters())


def scaled():
    torch.manual_seed(3)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
    for step in range(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(torch.randn(8, 4)).float().square().mean()
        scaler.scale(loss * (float("inf") if step == 2 else 1.0)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    show("scaler", scaler.get_scale(), *model.parameters())


class Double(torch.autograd.Function):
    """Runs an inner backward while backward is running."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            (again,) = torch.autograd.grad((inner * 2).sum(), inner)
        return gradient * again


@torch.library.custom_op("forms::scale", mutates_args=())
def scale(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


def remember(ctx, inputs, output):
    ctx.by = inputs[1]


scale.register_autograd(lambda ctx, gradient: (gradient * ctx.by, None), setup_context=remember)


def reentrant():
    x = torch.arange(1.0, 5.0, requires_grad=True)
    seen = []
    x.register_hook(lambda gradient: seen.append(gradient.sum()))
    y = scale(Double.apply(x), 3.0)
    y.register_hook(lambda gradient: gradient * torch.ones(4))
    (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    first.sum().backward()
    show("reentrant", x.grad, *seen)


def failing(depth):
    if depth == 0:
        raise ValueError("on purpose")
    return failing(depth - 1) + torch.ones(1)


def exceptions():
    caught = []
    for action in (lambda: failing(2), lambda: torch.ones(2) @ torch.ones(3), lambda: [][0]):
        try:
            action()
        except (ValueError, RuntimeError, IndexError) as error:
            frames = []
            trace = error.__traceback__
            while trace is not None:
                if trace.tb_frame.f_code.co_filename == __file__:
                    frames.append((trace.tb_frame.f_code.co_name, trace.tb_lineno))
                trace = trace.tb_next
            caught.append((type(error).__name__, str(error), frames, error.__context__))
        finally:
            caught.append(torch.ones(2).sum().item())
    try:
        raise ExceptionGroup("two", [ValueError(1), TypeError(2)])
    except* ValueError as group:
        caught.append(torch.tensor(len(group.exceptions)).item())
    except* TypeError as group:
        caught.append(torch.tensor(10 + len(group.exceptions)).item())
    with contextlib.suppress(ZeroDivisionError):
        torch.ones(1) * (1 // 0)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        helper_that_warns(torch.ones(2))
    caught.append([(item.lineno, str(item.message)) for item in shown])
    show("exceptions", caught)


def helper_that_warns(x):
    warnings.warn(f"sum is {x.sum().item()}", stacklevel=2)
    return x


def windows(x):
    received = None
    for row in x:
        received = yield row * 2 if received is None else row * received
    return x.sum()


def delegating(x):
    total = yield from windows(x)
    yield total


def generators():
    x = torch.arange(6.0).reshape(3, 2)
    running = delegating(x)
    out = [next(running), running.send(torch.tensor(3.0))]
    abandoned = windows(x)
    next(abandoned)
    abandoned.close()
    thrown = windows(x)
    next(thrown)
    with contextlib.suppress(KeyError):
        thrown.throw(KeyError("stop"))
    out += list(running)
    out += [sum(a @ b for a, b in zip(x, x, strict=True)), torch.stack([row + 1 for row in x])]
    unstarted = windows(x)
    del unstarted, abandoned
    show("generators", *out)


class Stream:
    def __init__(self, x):
        self.rows = iter(x)

    def __aiter__(self):
        return self

    async def __anext__(self):
        await asyncio.sleep(0)
        try:
            return next(self.rows) * 2
        except StopIteration:
            raise StopAsyncIteration from None

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        await asyncio.sleep(0)


async def work(number):
    total = torch.zeros(2)
    async with Stream(torch.full((3, 2), float(number))) as stream:
        async for row in stream:
            total = total + row
            await asyncio.sleep(0)
    return total + sum([row.sum() async for row in Stream(torch.ones(2, 2))])


async def gathered():
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work(number)) for number in range(3)]
    late = asyncio.create_task(work(9))
    await asyncio.sleep(0)
    late.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await late
    return [task.result() for task in tasks] + [await asyncio.to_thread(torch.ones(2).sum)]


def threads():
    results = [None] * 4

    def train(index):
        weight = torch.full((3,), float(index), requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (weight * weight).sum().backward()
            optimizer.step()
        results[index] = weight

    running = [threading.Thread(target=train, args=(index,)) for index in range(4)]
    for thread in running:
        thread.start()
    own = torch.ones(3, requires_grad=True)
    (own * 2).sum().backward()
    for thread in running:
        thread.join()
    show("threads", own.grad, *results)


def hooks():
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    calls = []
    handles = [
        model[0].register_forward_pre_hook(lambda m, args: (args[0] + 1,)),
        model[0].register_forward_hook(lambda m, args, out: calls.append("fwd") or out * 2),
        model[2].register_full_backward_hook(lambda m, gi, go: calls.append("bwd")),
        model[0].register_full_backward_pre_hook(lambda m, go: (go[0] * 2,)),
    ]
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.register_step_post_hook(lambda *a: calls.append("step"))
    x = torch.randn(4, 3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (calls.append("pack"), t)[1], lambda t: t
    ):
        loss = model(x).sum()
    loss.backward()
    optimizer.step()
    for handle in handles:
        handle.remove()
    show("hooks", calls, x.grad, *model.parameters())


def main():
    random.seed(5)
    numpy.random.seed(6)
    torch.manual_seed(7)
    torch.set_num_threads(1)
    for part in (
        checkpoints,
        accumulation,
        scaled,
        reentrant,
        exceptions,
        generators,
        threads,
        hooks,
    ):
        part()
    show("async", *asyncio.run(gathered()))
    show("random", torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tobytes())
    limits = (sys.getrecursionlimit(), torch.get_num_threads(), torch.is_grad_enabled())
    show("settings", limits, torch.is_autocast_enabled("cpu"), threading.active_count())


if __name__ == "__main__":
    main()
