"""What the tracer promises on a device: few launches, no waiting, graphs left alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch.profiler import ProfilerActivity, profile
from values import device_values, host_values

import xorsig
from opguard.core.cuda.device import CudaDevice
from opguard.core.cuda.kernels import KERNELS
from opguard.core.cuda.results import Results


class Arrivals:
    """Takes fingerprints that arrive, in place of a capture writer."""

    def __init__(self) -> None:
        self._values: list[tuple[xorsig.PendingSignature, bytes]] = []

    def resolve(self, signatures: Sequence[xorsig.PendingSignature], data: bytes | None) -> None:
        assert data is not None, "fingerprints were lost"
        size = len(data) // len(signatures)
        for i, signature in enumerate(signatures):
            self._values.append((signature, data[i * size : (i + 1) * size]))

    def value(self, signature: xorsig.PendingSignature) -> bytes | None:
        """The bytes, if they have arrived."""
        return next((value for known, value in self._values if known == signature), None)


WAITING_CALLS = ("Synchronize", "cudaMemcpy", "cudaStreamQuery")


def observed(action: Callable[[], object]) -> tuple[Counter[str], Counter[str]]:
    """Kernels and runtime calls of an action, by the profiler."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        action()
        # The profiler sees kernels only once they have run.
        torch.cuda.synchronize()
    kernels, calls = Counter(), Counter()
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels[event.name] += 1
        elif event.name.startswith("cuda"):
            calls[event.name] += 1
    return kernels, calls


def waiting_calls(calls: Counter[str]) -> dict[str, int]:
    """Those of the runtime calls of an observed action that wait for the device."""
    waiting = {name: n for name, n in calls.items() if any(part in name for part in WAITING_CALLS)}
    # What `observed` itself calls once, and copies that are asynchronous.
    waiting.pop("cudaMemcpyAsync", None)
    waiting["cudaDeviceSynchronize"] = waiting.get("cudaDeviceSynchronize", 1) - 1
    return {name: count for name, count in waiting.items() if count}


def launches() -> dict[str, object]:
    """One kernel for a tensor whose regions are small, else two."""
    counted = {}
    for nbytes, expected in ((1000, 1), (4 * 65_536, 1), (4 * 65_536 + 16, 2), (1 << 26, 2)):
        tensor = torch.zeros(nbytes, dtype=torch.uint8, device="cuda")
        out = torch.empty(8, dtype=torch.int32, device="cuda")
        kernels, _ = observed(lambda t=tensor, o=out: KERNELS.signature(t, 4, out=o))
        ours = sum(count for name, count in kernels.items() if "opguard" in name)
        assert ours == expected, f"{nbytes} bytes: {ours} launches, {expected} expected: {kernels}"
        counted[nbytes] = ours
    return {"launches by bytes": counted}


def waits() -> dict[str, object]:
    """A thousand fingerprints into pages: no runtime call that waits for the device."""
    tensors = [torch.randn(10_000, device="cuda") for _ in range(20)]
    queue = Results(CudaDevice(), Arrivals(), 32)

    def many() -> None:
        for number in range(1000):
            queue.fingerprint(tensors[number % 20])

    many()  # pages, pinned memory and the side stream exist from here on
    queue.flush()
    torch.cuda.synchronize()
    _, calls = observed(many)
    waiting = waiting_calls(calls)
    assert not waiting, f"calls that wait: {waiting}"
    queue.close()
    return {"runtime calls": dict(calls), "waits counted": queue.waits}


def results() -> dict[str, object]:
    """Values through pages, on two streams, are those of the host."""
    arrivals = Arrivals()
    queue = Results(CudaDevice(), arrivals, 32, page_slots=16)
    pending = []
    streams = [torch.cuda.Stream() for _ in range(2)]
    for number in range(200):
        with torch.cuda.stream(streams[number % 2]):
            tensor = torch.randn(1 + 37 * number, device="cuda")
            pending.append((queue.fingerprint(tensor), tensor))
    queue.close()
    for item, tensor in pending:
        assert arrivals.value(item) == host_values(tensor, 4), f"{tensor.numel()} elements"
    return {"fingerprints": len(pending)}


def captures() -> dict[str, object]:
    """A launch can be captured and replayed, and the tracer sees a capture and keeps out."""
    tensor = torch.randint(0, 256, (5_000_001,), dtype=torch.uint8, device="cuda")
    out = torch.empty(128, dtype=torch.int32, device="cuda")
    device = CudaDevice()
    assert not device.capturing(tensor)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert device.capturing(tensor)
        KERNELS.signature(tensor, 64, out=out)
    for _ in range(3):
        tensor.random_(0, 256)
        graph.replay()
        assert out.cpu().numpy().tobytes() == host_values(tensor, 64), "values of a replay"
    # Results of before are fetched while another capture is open.
    arrivals = Arrivals()
    queue = Results(device, arrivals, 32)
    item = queue.fingerprint(tensor)
    queue.flush()
    expected = device_values(tensor, 4)
    other = torch.empty(10, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        other.add_(1)
        deadline = time.monotonic() + 60
        while (fetched := arrivals.value(item)) is None and time.monotonic() < deadline:
            time.sleep(0.001)
    graph.replay()
    queue.close()
    assert fetched == expected, "a value fetched during a capture"
    return {"replays": 3}
