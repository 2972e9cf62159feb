"""The kernels' values on the emulated device against vectors, xorsig and the tensor operations."""

import ctypes
import itertools
import json
import mmap
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from emulated import noise

import xorsig
from opguard.core import _fallback
from opguard.core.cuda.library import BOTH, PLAIN, CudaError

ROOT = Path(__file__).resolve().parents[3]
REGIONS = (1, 2, 3, 4, 5, 7, 8, 33, 63, 64)


def vectors() -> list[dict]:
    own = ROOT / "crates" / "xorsig" / "vectors" / "fingerprint.json"
    return json.loads(own.read_text())["vectors"]


def shared_vectors() -> list[dict]:
    folder = Path(os.environ.get("OPGUARD_SHARED", ROOT.parent / "shared"))
    file = folder / "data" / "fingerprint-vectors.json"
    if not file.is_file():
        pytest.skip(f"no shared vectors at {file}")
    return json.loads(file.read_text())["vectors"]


def pattern(vector: dict) -> np.ndarray:
    index = np.arange(vector["nbytes"], dtype=np.uint64)
    return ((index * vector["mul"] + vector["add"]) % 251).astype(np.uint8)


def reference(data: np.ndarray, regions: int) -> list[int]:
    """Values of both schemes by the native code of the host."""
    address = data.ctypes.data if data.nbytes else 0
    signature = xorsig.fingerprint(address, (data.nbytes,), (1,), 1, regions)
    return np.frombuffer(signature, "<u4").tolist()


def placed(data: np.ndarray, offset: int) -> np.ndarray:
    """The same bytes at an address of the given remainder by 16, among noise."""
    memory = noise(data.nbytes + offset, seed=offset)
    memory[offset : offset + data.nbytes] = data
    return memory[offset : offset + data.nbytes]


@pytest.mark.requirement("F8")
def test_kernels_agree_with_every_vector_of_both_schemes(small, full):
    for (index, vector), library in itertools.product(enumerate(vectors()), (small, full)):
        data = placed(pattern(vector), index % 16)
        got = library.values(data, vector["regions"])
        assert got == vector["xor"] + vector["mix"], vector["nbytes"]


def test_kernels_agree_with_the_shared_vectors(small, full):
    for (index, vector), library in itertools.product(enumerate(shared_vectors()), (small, full)):
        data = placed(pattern(vector), (index + 3) % 16)
        assert library.values(data, vector["regions"], PLAIN) == vector["xor"], vector["nbytes"]


def test_every_small_size_and_start_gives_the_values_of_the_host(small):
    memory = noise(200)
    for nbytes, offset in itertools.product(range(133), range(16)):
        data = memory[offset : offset + nbytes]
        for regions in (REGIONS[(nbytes + offset) % 10], REGIONS[(nbytes + 3 * offset + 4) % 10]):
            expected = reference(data, regions)
            assert small.values(data, regions) == expected, (nbytes, offset, regions)
            plain = small.values(data, regions, PLAIN)
            assert plain == expected[:regions], (nbytes, offset, regions)


def test_sizes_around_tiles_and_blocks_give_the_values_of_the_host(small):
    tile = 64 * 2 * 16
    memory = noise(20 * tile)
    sizes = [k * tile + d for k in (1, 2, 4, 5, 9, 17) for d in (-17, -1, 0, 1, 3, 20)]
    for index, nbytes in enumerate(sizes):
        for offset in (0, 1, 2, 3, 4, 8, 15):
            small.order(index % 4)
            data = memory[offset : offset + nbytes]
            regions = (1, 2, 3, 5)[(index + offset) % 4]
            blocks = (None, 1, 2, 3)[index % 4]
            got = small.values(data, regions, blocks=blocks)
            assert got == reference(data, regions), (nbytes, offset, regions, blocks)
    small.order(0)


def test_the_kernels_of_devices_give_the_values_of_the_host(full):
    memory = noise(1 << 21)
    for nbytes, regions, offset in (
        *((65_536, 1, 0), (65_537, 1, 0), (70_001, 1, 3), (262_144, 4, 0), (262_145, 4, 5)),
        *((1 << 21, 4, 0), ((1 << 21) - 3, 64, 1), (1_500_007, 7, 10), (16_383, 4, 2)),
    ):
        data = memory[offset : offset + nbytes]
        for schemes in (BOTH, PLAIN):
            got = full.values(data, regions, schemes, resident=1056)
            assert got == reference(data, regions)[: len(got)], (nbytes, regions, offset)


@pytest.mark.requirement("F10")
def test_kernels_agree_with_the_tensor_operations_for_every_dtype(small):
    generator = torch.Generator().manual_seed(3)
    for name in dir(torch):
        dtype = getattr(torch, name)
        if not isinstance(dtype, torch.dtype) or dtype.itemsize == 0:
            continue
        raw = torch.randint(0, 256, (37 * dtype.itemsize,), generator=generator, dtype=torch.uint8)
        try:
            tensor = raw.view(dtype)
        except RuntimeError:  # quantised and bit types have no view
            continue
        expected = torch.cat([_fallback.region_xor(tensor, 4), _fallback.region_mix(tensor, 4)])
        got = small.values(raw.numpy(), 4)
        assert got == [value & 0xFFFFFFFF for value in expected.tolist()], dtype


def test_no_order_of_threads_and_blocks_changes_a_value(small):
    data = noise(30_000)[5:29_999]
    expected = reference(data, 3)
    for order in range(12):
        small.order(order)
        assert small.values(data, 3, blocks=3) == expected
    small.order(0)


def test_an_aligned_tensor_is_read_once_and_a_shifted_one_little_more(small):
    memory = noise(70_000)
    for offset in range(16):
        data = memory[offset : offset + 66_666]
        small.values(data, 3)
        extra = small.bytes_read() - data.nbytes
        if offset % 4 == 0:
            assert extra == 0
        else:
            # Four bytes per warp and vector (512 bytes), per unit of a partial tile, and at ends.
            assert 0 < extra <= 4 * (66_666 // 512 + 3 * (128 + 2))


@pytest.mark.requirement("F9")
def test_a_tensor_takes_one_launch_or_two(full):
    memory = noise(1 << 20)
    for nbytes, regions, launches in (
        *((0, 4, 1), (1, 64, 1), (65_536, 1, 1), (65_540, 1, 2)),
        *((262_144, 4, 1), (262_160, 4, 2), (1 << 20, 64, 1)),
    ):
        plan = full.plan(nbytes, regions, BOTH, 1056)
        full.run(plan, memory[:nbytes])
        assert (full.launches(), plan.launches) == (launches, launches)


def test_a_plan_fills_the_device_once_and_never_more(full):
    for nbytes, regions, resident in itertools.product(
        (0, 100_000, 10_000_000, 1 << 34, 1 << 40), (1, 3, 4, 64), (1, 8, 264, 1056, 100_000)
    ):
        plan = full.plan(nbytes, regions, BOTH, resident)
        blocks = plan.blocks_per_region * regions
        assert blocks <= max(min(resident, 4096), regions)
        assert plan.workspace_bytes <= 4096 * 8
        if nbytes >= 1 << 34 and resident >= regions:
            assert blocks > min(resident, 4096) - regions


def sparse_tensor(nbytes: int) -> tuple[int, mmap.mmap]:
    """Address of ``nbytes`` readable bytes in little memory: one file mapped again and again."""
    piece = 32 << 20
    total = -(-nbytes // piece) * piece
    descriptor = os.memfd_create("opguard")
    os.ftruncate(descriptor, piece)
    with mmap.mmap(descriptor, piece) as tile:
        tile[:] = np.random.default_rng(7).bytes(piece)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
        ctypes.c_long,
    )
    reserved = mmap.mmap(-1, total, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
    address = ctypes.addressof(ctypes.c_char.from_buffer(reserved))
    fixed = mmap.MAP_SHARED | 0x10
    for start in range(0, total, piece):
        place = libc.mmap(address + start, piece, mmap.PROT_READ, fixed, descriptor, 0)
        assert place == address + start
    os.close(descriptor)
    return address, reserved


def test_words_past_two_to_the_32_have_their_own_keys_and_addresses(full):
    # Only the blocks of the region that crosses the boundary run: 0.27 GiB of the 17 are read.
    nbytes, regions, region = 17 << 30, 64, 60
    address, _keep = sparse_tensor(nbytes)
    words = nbytes // 4
    first = region * (words // regions)
    assert first < 1 << 32 < first + words // regions
    plan = full.plan(nbytes, regions, BOTH, 1056)
    out = np.zeros(2 * regions, np.uint32)
    workspace = np.zeros(plan.workspace_bytes, np.uint8)
    full.watch(address, nbytes)
    full.only_region(region)
    full.launch(plan, address, out.ctypes.data, workspace.ctypes.data, workspace.nbytes, 0, 0)
    full.only_region(-1)
    assert [out[region], out[regions + region]] == values_by_definition(
        address, first, words // regions
    )


def values_by_definition(address: int, first: int, count: int) -> list[int]:
    """Both schemes of ``count`` words from index ``first`` of the tensor at ``address``."""
    plain, mixed = np.uint32(0), np.uint32(0)
    for start in range(first, first + count, 1 << 20):
        size = min(1 << 20, first + count - start)
        index = np.arange(start, start + size, dtype=np.uint64)
        low, high = index.astype(np.uint32), (index >> np.uint64(32)).astype(np.uint32)
        key = low * np.uint32(0x9E3779B1) + high * np.uint32(0x85EBCA77)
        word = np.ctypeslib.as_array((ctypes.c_uint32 * size).from_address(address + 4 * start))
        x = word ^ key
        x = (x ^ (x >> np.uint32(15))) * np.uint32(0x7FEB352D)
        x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
        x = (x ^ (x >> np.uint32(15))) + key
        plain ^= np.bitwise_xor.reduce(word)
        mixed ^= np.bitwise_xor.reduce(x)
    return [int(plain), int(mixed)]


def test_arguments_out_of_range_are_errors_and_not_crashes(small):
    for nbytes, regions, schemes, element, resident in (
        *((8, 0, BOTH, 0, 8), (8, 65, BOTH, 0, 8), (8, 4, 2, 0, 8), (8, 4, 0, 0, 8)),
        *((8, 4, BOTH, 7, 8), (8, 4, PLAIN, 1, 8), (8, 4, BOTH, 0, 0), (7, 4, BOTH, 2, 8)),
    ):
        with pytest.raises(CudaError) as caught:
            small.plan(nbytes, regions, schemes, resident, element)
        assert caught.value.code == -1
    data = noise(1 << 16)
    out = np.zeros(8, np.uint32)
    workspace = np.zeros(1 << 16, np.uint8)
    plan = small.plan(1 << 16, 1, BOTH, 8)
    for data_at, out_at, workspace_bytes, device, code in (
        *((0, out.ctypes.data, 1 << 16, 0, -1), (data.ctypes.data, 0, 1 << 16, 0, -1)),
        (data.ctypes.data, out.ctypes.data, plan.workspace_bytes - 1, 0, -2),
        (data.ctypes.data, out.ctypes.data, 1 << 16, 9, 101),
    ):
        with pytest.raises(CudaError) as caught:
            small.launch(plan, data_at, out_at, workspace.ctypes.data, workspace_bytes, device, 0)
        assert caught.value.code == code
    with pytest.raises(CudaError):
        small.resident_blocks(-1)
