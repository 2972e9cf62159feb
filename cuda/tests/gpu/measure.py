"""Speed on a device: bandwidth against a copy in the same run, and the cost of a traced step."""

from __future__ import annotations

import importlib.util
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import opguard.core
from opguard.core.cuda.kernels import KERNELS

WORKLOADS = Path(__file__).resolve().parents[3] / "tests" / "benchmarks" / "workloads.py"
SIZES = tuple(1 << shift for shift in range(10, 33, 2))
REGIONS = (1, 4, 64)
ROUNDS = 7
STEPS = 20


def seconds(action: Callable[[], object], repeats: int) -> float:
    """Median time of an action on the device, from graphs that repeat it."""
    action()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            action()
    samples = []
    for _ in range(ROUNDS):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples.append(begin.elapsed_time(end) / 1e3 / repeats)
    return statistics.median(samples)


def bandwidth_table() -> dict[str, object]:
    """Time and bandwidth from 1 KiB to 4 GiB, as GB/s read, beside those of a device copy.

    A copy of n bytes moves 2 n. Each action runs on several tensors in turn, so that together they
    exceed the L2 cache where the sizes allow it.
    """
    free, _ = torch.cuda.mem_get_info()
    rows = {}
    for nbytes in SIZES:
        if 3 * nbytes > free:
            continue
        copies = max(1, min(32, (512 << 20) // nbytes))
        tensors = torch.randint(0, 256, (copies, nbytes), dtype=torch.uint8, device="cuda")
        target = torch.empty_like(tensors)
        row: dict[str, str] = {}

        def copy_all(source=tensors, target=target) -> None:
            for one, other in zip(target, source, strict=True):
                one.copy_(other)

        copy = seconds(copy_all, 1) / copies
        row["copy"] = f"{copy * 1e6:.1f} us {2 * nbytes / copy / 1e9:.0f} GB/s"
        for regions in REGIONS:
            for mixed in (False, True):
                values = regions * (2 if mixed else 1)
                out = torch.empty(values, dtype=torch.int32, device="cuda")

                def all_of(source=tensors, regions=regions, mixed=mixed, out=out) -> None:
                    for tensor in source:
                        KERNELS.signature(tensor, regions, mixed=mixed, out=out)

                took = seconds(all_of, 1) / copies
                name = f"{'both' if mixed else 'plain'} R={regions}"
                row[name] = (
                    f"{took * 1e6:.1f} us {nbytes / took / 1e9:.0f} GB/s "
                    f"({nbytes / took / (2 * nbytes / copy):.2f} of the copy's traffic)"
                )
        rows[f"{nbytes >> 10} KiB"] = row
        del tensors, target
    shifted = torch.randint(0, 256, ((1 << 28) + 16,), dtype=torch.uint8, device="cuda")
    for start in (0, 1, 4, 16):
        tensor = shifted[start : start + (1 << 28)]
        out = torch.empty(8, dtype=torch.int32, device="cuda")
        took = seconds(lambda t=tensor, o=out: KERNELS.signature(t, 4, out=o), 10)
        rows[f"256 MiB from byte {start}"] = {"both R=4": f"{tensor.numel() / took / 1e9:.0f} GB/s"}
    return rows


def step_overhead() -> dict[str, object]:
    """Time of a training step, traced and not, in alternation in one process."""
    spec = importlib.util.spec_from_file_location("workloads", WORKLOADS)
    assert spec is not None
    assert spec.loader is not None
    workloads = importlib.util.module_from_spec(spec)
    sys.modules["workloads"] = workloads
    spec.loader.exec_module(workloads)
    torch.manual_seed(0)
    model = workloads.Transformer().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(
        0, workloads.VOCABULARY, (workloads.BATCH, workloads.CONTEXT + 1), device="cuda"
    )

    def loss_of(logits: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def steps(forward: Callable[..., torch.Tensor]) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss_of(forward(tokens[:, :-1])).backward()
            optimizer.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / STEPS

    steps(model)
    plain, traced = [], []
    for _ in range(ROUNDS):
        plain.append(steps(model))
        with (
            tempfile.TemporaryDirectory() as folder,
            opguard.core.capture(Path(folder) / "out", root=WORKLOADS.parent) as session,
        ):
            traced.append(steps(session.observe(model)))
    ratio = statistics.median(t / p for t, p in zip(traced, plain, strict=True))
    return {
        "step": f"{statistics.median(plain) * 1e3:.2f} ms",
        "traced": f"{statistics.median(traced) * 1e3:.2f} ms",
        "ratio": f"{ratio:.3f}",
    }
