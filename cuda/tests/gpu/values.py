"""Values of the kernels on a device against vectors, the host's native code and torch."""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import os
from pathlib import Path

import torch

import xorsig
from opguard.core import _fallback
from opguard.core.cuda.kernels import KERNELS
from opguard.core.cuda.library import BOTH, Statistics

VECTORS = Path(__file__).resolve().parents[3] / "crates" / "xorsig" / "vectors" / "fingerprint.json"
REGIONS = (1, 2, 4, 7, 33, 64)
# Around words, vectors, tiles (16 KiB), regions of one block (64 KiB), and beyond.
SIZES = (
    *(0, 1, 3, 4, 5, 15, 16, 17, 31, 63, 64, 65, 255, 1000, 4095, 16_383, 16_384, 16_385),
    *(65_535, 65_536, 65_537, 262_144, 262_147, 1 << 20, 4_194_305, 8_999_980),
)
# The element numbers of the C ABI.
ELEMENTS = {
    torch.float64: 1,
    torch.float32: 2,
    torch.float16: 3,
    torch.bfloat16: 4,
    torch.float8_e5m2: 5,
    torch.float8_e4m3fn: 6,
}


def device_values(tensor: torch.Tensor, regions: int, *, mixed: bool = True) -> bytes:
    """Values by the kernels, fetched."""
    return KERNELS.signature(tensor, regions, mixed=mixed).cpu().numpy().tobytes()


def host_values(tensor: torch.Tensor, regions: int) -> bytes:
    """Values of the same bytes by the native code of the host."""
    data = tensor.cpu().contiguous()
    address = data.data_ptr() if data.numel() else 0
    return xorsig.fingerprint(
        address, tuple(data.shape), data.stride(), data.element_size(), regions
    )


def agrees_with_vectors() -> dict[str, object]:
    """Every golden vector, at several starts."""
    vectors = json.loads(VECTORS.read_text())["vectors"]
    for number, vector in enumerate(vectors):
        index = torch.arange(vector["nbytes"], dtype=torch.int64)
        data = ((index * vector["mul"] + vector["add"]) % 251).to(torch.uint8)
        memory = torch.zeros(len(data) + 16, dtype=torch.uint8, device="cuda")
        start = number % 16
        memory[start : start + len(data)] = data.cuda()
        got = KERNELS.signature(memory[start : start + len(data)], vector["regions"])
        expected = vector["xor"] + vector["mix"]
        found = [value & 0xFFFFFFFF for value in got.tolist()]
        assert found == expected, f"vector {number}: {found} and not {expected}"
    return {"vectors": len(vectors)}


def agrees_with_host() -> dict[str, object]:
    """Sizes, regions and starts, random bytes; dtypes; tensors that are not contiguous."""
    few = "OPGUARD_GPU_FEW" in os.environ
    memory = torch.randint(0, 256, (9_000_000,), dtype=torch.uint8, device="cuda")
    copy = memory.cpu()
    cases = 0
    for nbytes, regions, start in itertools.product(
        SIZES[:24] if few else SIZES, REGIONS, (0, 3, 8) if few else (0, 1, 2, 3, 4, 8, 13, 15)
    ):
        tensor = memory[start : start + nbytes]
        expected = host_values(copy[start : start + nbytes], regions)
        case = f"{nbytes} bytes, {regions} regions, start {start}"
        assert device_values(tensor, regions) == expected, case
        plain = device_values(tensor, regions, mixed=False)
        assert plain == expected[: 4 * regions], f"{case}, plain scheme alone"
        cases += 1
    for tensor in (
        torch.randn(100, 70, device="cuda").T,
        torch.randn(64, 64, device="cuda", dtype=torch.bfloat16)[:, ::3],
        torch.arange(8, device="cuda").expand(50, 8),
        torch.randn(33, device="cuda", dtype=torch.complex64),
        torch.tensor(2.5, device="cuda"),
    ):
        assert device_values(tensor, 4) == host_values(tensor, 4), f"strides {tensor.stride()}"
        both = torch.cat([_fallback.region_xor(tensor, 4), _fallback.region_mix(tensor, 4)])
        assert both.cpu().numpy().tobytes() == host_values(tensor, 4), "tensor operations"
        cases += 1
    return {"cases": cases}


def statistics() -> dict[str, object]:
    """Statistics of every element type against torch; equal bit by bit when repeated."""
    library = KERNELS._library
    assert library is not None
    device = torch.cuda.current_device()
    resident = library.resident_blocks(device)
    stream = torch.cuda.current_stream().cuda_stream
    for dtype, count in itertools.product(ELEMENTS, (1000, 3_000_001)):
        tensor = torch.randn(count, device="cuda").to(dtype)
        nbytes = tensor.numel() * tensor.element_size()
        plan = library.plan(nbytes, 4, BOTH, resident, ELEMENTS[dtype])
        out = torch.empty(8, dtype=torch.int32, device="cuda")
        workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")
        summaries = []
        for _ in range(3):
            summary = torch.empty(ctypes.sizeof(Statistics), dtype=torch.uint8, device="cuda")
            library.launch(
                *(plan, tensor.data_ptr(), out.data_ptr(), workspace.data_ptr()),
                *(plan.workspace_bytes, device, stream, summary.data_ptr()),
            )
            summaries.append(bytes(summary.tolist()))
        assert len(set(summaries)) == 1, f"{dtype}: statistics change when repeated"
        got = Statistics.from_buffer_copy(summaries[0])
        wide = tensor.double()
        finite = wide[wide.isfinite()]
        assert (got.nans, got.infinities, got.zeros) == (
            *(int(wide.isnan().sum()), int(wide.isinf().sum()), int((wide == 0).sum())),
        ), f"{dtype}: counts"
        assert (got.minimum, got.maximum) == (finite.min().item(), finite.max().item()), dtype
        assert math.isclose(got.l2, finite.norm().item(), rel_tol=1e-9), f"{dtype}: l2"
        error = abs(got.mean - finite.mean().item())
        assert error <= 1e-9 * finite.abs().mean().item(), f"{dtype}: mean"
    return {"element types": len(ELEMENTS)}


def large_tensors() -> dict[str, object]:
    """A tensor of more than 2^32 words, from the values of its parts."""
    nbytes = (17 << 30) + 12
    free, _ = torch.cuda.mem_get_info()
    if free < nbytes + (2 << 30):
        return {"skipped": f"{free / 2**30:.0f} GiB free, 19 needed"}
    piece = torch.randint(0, 256, (1 << 30,), dtype=torch.uint8, device="cuda")
    tensor = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
    for start in range(0, nbytes, 1 << 30):
        end = min(start + (1 << 30), nbytes)
        tensor[start:end] = piece[: end - start]
    got = device_values(tensor, 4)
    # The host reads the same bytes; a copy of 17 GiB must fit there.
    data = tensor.cpu()
    assert got == xorsig.fingerprint(data.data_ptr(), (nbytes,), (1,), 1, 4)
    return {"bytes": nbytes}
