"""Fingerprint functions against vectors and a reference in plain Python."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import xorsig

VECTORS = Path(__file__).parents[2] / "vectors" / "fingerprint.json"
MASK = 0xFFFFFFFF


def mix(word: int, index: int) -> int:
    """The mixer of flat-u32-mix-v1, as the format document writes it."""
    key = ((index & MASK) * 0x9E3779B1 + (index >> 32) * 0x85EBCA77) & MASK
    x = word ^ key
    x = (x ^ x >> 15) * 0x7FEB352D & MASK
    x = (x ^ x >> 15) * 0x846CA68B & MASK
    return ((x ^ x >> 15) + key) & MASK


def pattern(vector: dict[str, int]) -> bytes:
    return bytes((i * vector["mul"] + vector["add"]) % 251 for i in range(vector["nbytes"]))


def reference(data: bytes, regions: int) -> tuple[list[int], list[int]]:
    """Both values of each region, word by word."""
    words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]
    short, long = divmod(len(words), regions)
    xors, mixes, index = [], [], 0
    for region in range(regions):
        xors.append(0)
        mixes.append(0)
        for _ in range(short + (region < long)):
            xors[-1] ^= words[index]
            mixes[-1] ^= mix(words[index], index)
            index += 1
    return xors, mixes


def recorded(data: bytes, regions: int) -> bytes:
    xors, mixes = reference(data, regions)
    return struct.pack(f"<{2 * regions}I", *xors, *mixes)


def of_array(array: np.ndarray[Any, Any], regions: int = 4) -> bytes:
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return xorsig.fingerprint(array.ctypes.data, array.shape, strides, array.itemsize, regions)


@pytest.mark.requirement("F13")
@pytest.mark.requirement("F4")
def test_committed_vectors_hold_for_both_schemes() -> None:
    document = json.loads(VECTORS.read_text())
    for vector in document["vectors"]:
        data, regions = pattern(vector), vector["regions"]
        found = {
            "xor": list(xorsig.region_xor(data, regions)),
            "mix": list(xorsig.region_mix(data, regions)),
            "byte_ranges": [list(pair) for pair in xorsig.byte_ranges(len(data), regions)],
        }
        assert found == {name: vector[name] for name in found}
        assert reference(data, regions) == (vector["xor"], vector["mix"])
    for vector in document["mix"]:
        assert mix(vector["word"], vector["index"]) == vector["mix"]
    schemes = (document["xor_scheme"], document["mix_scheme"])
    assert schemes == (xorsig.XOR_SCHEME, xorsig.MIX_SCHEME)


@pytest.mark.requirement("F2")
@pytest.mark.requirement("F3")
def test_vectors_of_the_specification_hold(shared_vectors: Path) -> None:
    document = json.loads(shared_vectors.read_text())
    assert document["scheme"] == xorsig.XOR_SCHEME
    for vector in document["vectors"]:
        data, regions = pattern(vector), vector["regions"]
        assert list(xorsig.region_xor(data, regions)) == vector["xor"]
        ranges = [list(pair) for pair in xorsig.byte_ranges(len(data), regions)]
        assert ranges == vector["byte_ranges"]


@given(st.binary(max_size=300), st.integers(1, 64))
def test_dense_bytes_equal_the_reference(data: bytes, regions: int) -> None:
    xors, mixes = reference(data, regions)
    assert xorsig.region_xor(data, regions) == tuple(xors)
    assert xorsig.region_mix(data, regions) == tuple(mixes)
    assert xorsig.xor(data) == np.bitwise_xor.reduce(np.array(xors, dtype=np.uint32))
    array = np.frombuffer(data, np.uint8)
    assert of_array(array, regions) == recorded(data, regions)


@pytest.mark.requirement("F1")
@pytest.mark.requirement("F8")
@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "f8", "c16"])
def test_strided_tensors_equal_their_contiguous_copies(dtype: str) -> None:
    base = np.random.default_rng(7).integers(0, 200, (37, 12, 20)).astype(dtype)
    views = [
        base,
        base.transpose(2, 0, 1),
        base.transpose(1, 0, 2),
        base[::2],
        base[:, 1:],
        base[..., ::3],
        base[1:, 2:, 3:].T,
        base[5, 6, 7],
        base[:0],
        np.broadcast_to(base[:, :1], (37, 9, 20)),
        np.broadcast_to(base[0, 0, 0], (3, 5)),
    ]
    for view in views:
        expected = recorded(np.ascontiguousarray(view).tobytes(), 4)
        assert of_array(np.asarray(view)) == expected, (view.shape, view.strides)


@pytest.mark.parametrize("offset", range(9))
def test_alignment_does_not_matter(offset: int) -> None:
    data = bytes(range(251)) * 3
    assert xorsig.region_mix(memoryview(bytes(offset) + data)[offset:]) == xorsig.region_mix(data)


def test_empty_tensor_needs_no_address() -> None:
    assert xorsig.fingerprint(0, (3, 0), (1, 1), 4) == bytes(32)
    assert xorsig.xor(b"") == 0
    assert xorsig.region_xor(b"") == (0, 0, 0, 0)


def test_gil_is_released_for_large_inputs() -> None:
    """Another thread runs while a large input is hashed over and over."""
    data = np.zeros(1 << 22, np.uint8)
    ticks, stop = 0, threading.Event()

    def count() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = ticks
    while ticks == before:
        xorsig.xor(data)
    stop.set()
    thread.join()
    assert ticks > before


@pytest.mark.parametrize("regions", [0, 65])
def test_regions_out_of_range_are_refused(regions: int) -> None:
    for call in (
        lambda: xorsig.region_xor(b"abcd", regions),
        lambda: xorsig.region_mix(b"abcd", regions),
        lambda: xorsig.byte_ranges(4, regions),
        lambda: of_array(np.zeros(4, np.float32), regions),
    ):
        with pytest.raises(ValueError, match="1 to 64"):
            call()


def test_descriptions_that_cannot_be_walked_are_refused() -> None:
    for arguments, message in (
        ((1, (2,), (), 4), "same length"),
        ((1, (2,), (1,), 0), "itemsize"),
        ((1, (1 << 62, 4), (1, 1), 4), "address space"),
        ((0, (2,), (1,), 4), "null"),
    ):
        with pytest.raises(ValueError, match=message):
            xorsig.fingerprint(*arguments)


def test_buffers_that_are_not_contiguous_are_refused() -> None:
    with pytest.raises(BufferError, match="contiguous"):
        xorsig.xor(np.zeros((4, 4))[:, ::2])
    with pytest.raises(TypeError):
        xorsig.xor("text")  # type: ignore[arg-type]


@pytest.mark.requirement("F6")
def test_rows_are_padded_on_their_own() -> None:
    data = bytes(range(1, 11))
    assert xorsig.row_xor(data, 2) == [xorsig.xor(data[:5]), xorsig.xor(data[5:])]
    assert xorsig.row_xor(b"", 3) == [0, 0, 0]
    assert xorsig.row_xor(b"", 0) == []
    for rows in (0, 3):
        with pytest.raises(ValueError, match="equal rows"):
            xorsig.row_xor(data, rows)


@pytest.mark.requirement("F8")
def test_values_do_not_depend_on_the_number_of_threads() -> None:
    array = np.random.default_rng(5).integers(0, 256, (17 << 20) + 3, np.uint8)
    arguments = (array.ctypes.data, array.shape, (1,), 1)
    for threads in (2, 5):
        assert xorsig.xor(array, threads=threads) == xorsig.xor(array, threads=1)
        for call in (xorsig.region_xor, xorsig.region_mix):
            assert call(array, 7, threads=threads) == call(array, 7, threads=1)
        several = xorsig.fingerprint(*arguments, threads=threads)
        assert several == xorsig.fingerprint(*arguments, threads=1)
    with pytest.raises(ValueError, match="threads"):
        xorsig.xor(array, threads=0)


def in_a_process_with(**environment: str) -> subprocess.CompletedProcess[str]:
    program = "import xorsig; print(xorsig.region_mix(bytes(range(251)) * 99, 3))"
    command = [sys.executable, "-c", program]
    variables = os.environ | environment
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def test_backend_of_the_environment_gives_the_same_values() -> None:
    expected = f"{xorsig.region_mix(bytes(range(251)) * 99, 3)}\n"
    for backend in ("portable", ""):
        assert in_a_process_with(XORSIG_BACKEND=backend).stdout == expected


def test_unknown_backend_fails_at_import_and_names_the_known_ones() -> None:
    completed = in_a_process_with(XORSIG_BACKEND="abacus")
    assert completed.returncode != 0
    assert "ValueError: XORSIG_BACKEND" in completed.stderr
    assert "portable" in completed.stderr


def test_byte_ranges_are_cut_at_the_logical_size() -> None:
    assert xorsig.byte_ranges(5, 4) == [(0, 4), (4, 5), (5, 5), (5, 5)]
    assert xorsig.byte_ranges(0, 2) == [(0, 0), (0, 0)]
