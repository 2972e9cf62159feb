"""Fingerprints: the kernels against a loop that only reads, the calls against other checksums."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from harness import Area, Claim, Group, Settings, Subject
from harness.machine import REPOSITORY
from harness.optional import optional

import xorsig

READ_LOOP = "read loop"
CRATE = REPOSITORY / "crates" / "xorsig" / "Cargo.toml"
# Above this size the data comes from memory or a shared cache, below from the core's own.
LARGE = 16 << 20
SMALL = 4 << 10


def area(settings: Settings) -> Area:
    """Kernels and calls."""
    notes: list[str] = []
    return Area("regional XOR and both schemes", _groups(settings, notes), notes)


def _groups(settings: Settings, notes: list[str]) -> Iterator[Group]:
    if settings.smoke:
        notes.append("the kernels were left out: cargo's own tests build their program")
    else:
        yield from _kernels(settings)
    # One thread each, as everywhere where threads are not what is compared.
    torch.set_num_threads(1)
    for name, size in (("64 MiB", 64 << 20), ("1 MiB", 1 << 20), ("1 KiB", 1 << 10)):
        yield _calls(name, min(size, SMALL) if settings.smoke else size, notes)
    yield _threads(SMALL if settings.smoke else 64 << 20)
    for dtype in (torch.float32, torch.bfloat16):
        yield _transpose(dtype, 64 if settings.smoke else 2048)
    yield _small_tensor()


def _kernels(settings: Settings) -> Iterator[Group]:
    """Groups of the Rust program, which times itself."""
    command = ["cargo", "run", "--release", "--quiet", "--manifest-path", str(CRATE)]
    command += ["--example", "fingerprint_rounds", "--", str(settings.rounds)]
    completed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    measured: dict[str, dict[str, Any]] = json.loads(completed.stdout)
    for name, result in sorted(measured.items(), key=lambda item: -item[1]["bytes"]):
        size, seconds = result["bytes"], result["seconds"]

        def collect(seconds: Mapping[str, Sequence[float]] = seconds) -> Any:
            return seconds

        yield Group(
            name=f"kernel, {name}",
            subjects={label: Subject(_never, size) for label in seconds},
            claims=list(_kernel_claims(size)),
            unit="B",
            collect=collect,
        )


def _kernel_claims(size: int) -> Iterator[Claim]:
    if size <= SMALL:
        yield Claim("plain R=64", "plain R=1", 3.0, ratio="time")
        yield Claim("both R=64", "both R=1", ratio="time")
        return
    least = 0.95 if size >= LARGE else 0.9
    for regions in (4, 64):
        yield Claim(f"plain R={regions}", READ_LOOP, least)
        yield Claim(f"plain R={regions}, odd address", READ_LOOP, least)
    yield Claim("both R=4", "plain R=4", 0.8 if size >= 64 << 20 else None)
    yield Claim("both R=4, odd address", "both R=4")


def _calls(name: str, size: int, notes: list[str]) -> Group:
    """What a caller in Python pays, arguments and results included."""
    tensor = torch.from_numpy(np.random.default_rng(3).standard_normal(size // 4, np.float32))
    array = tensor.numpy()
    address, shape, strides = tensor.data_ptr(), tuple(tensor.shape), tensor.stride()
    hash_tensor = torch.hash_tensor
    words, octets = array.view(np.uint64), array.view(np.uint8)
    contents = octets.tobytes()
    subjects = {
        "region_xor(R=4)": lambda: xorsig.region_xor(array, 4, threads=1),
        "region_xor(R=64)": lambda: xorsig.region_xor(array, 64, threads=1),
        "fingerprint(R=4)": lambda: xorsig.fingerprint(address, shape, strides, 4, 4, threads=1),
        "torch.hash_tensor": lambda: hash_tensor(tensor),
        "hashlib.md5": lambda: hashlib.md5(octets).digest(),
        "numpy xor.reduce(u64)": lambda: np.bitwise_xor.reduce(words),
    }
    for module, call in (
        ("xxhash", lambda xxhash: lambda: xxhash.xxh3_64_intdigest(octets)),
        ("blake3", lambda blake3: lambda: blake3.blake3(octets).digest()),
        ("google_crc32c", lambda crc: lambda: crc.value(contents)),
    ):
        peer = optional(module, notes)
        if peer is not None:
            subjects[module] = call(peer)
    targets = {
        ("64 MiB", "torch.hash_tensor"): 2.5,
        ("1 MiB", "torch.hash_tensor"): 15.0,
        ("1 KiB", "hashlib.md5"): 1.0,
    }
    ours = "region_xor(R=4)"
    peers = list(subjects)[3:]
    claims = [Claim(ours, peer, targets.get((name, peer))) for peer in peers]
    if name == "1 KiB":
        claims.append(Claim("fingerprint(R=4)", "hashlib.md5", 1.0))
    return Group(
        name=f"call, {name}",
        subjects={label: Subject(call, size) for label, call in subjects.items()},
        claims=claims,
        unit="B",
    )


def _threads(size: int) -> Group:
    """Two threads on one input, by the wall clock; torch's hash may use as many."""
    array = np.random.default_rng(3).integers(0, 256, size, np.uint8)
    subjects = {
        f"region_xor(R=4), {threads} threads": Subject(
            lambda threads=threads: xorsig.region_xor(array, 4, threads=threads), size, wall=True
        )
        for threads in (1, 2)
    }
    ours, peer = reversed(subjects)
    return Group("threads, 64 MiB", subjects, [Claim(ours, peer)], unit="B")


def _transpose(dtype: torch.dtype, side: int) -> Group:
    """A matrix in column order: read as it lies, against torch's copy into row order."""
    matrix = torch.randn(side, side).to(dtype).T
    size = matrix.numel() * matrix.itemsize
    tensor = xorsig.fingerprint_tensor

    subjects = {
        "fingerprint of the view": lambda: tensor(matrix),
        "copy by contiguous()": matrix.contiguous,
        "copy, then fingerprint": lambda: tensor(matrix.contiguous()),
    }
    ours, *peers = subjects
    return Group(
        name=f"transpose, {side}x{side} {str(dtype).removeprefix('torch.')}",
        subjects={label: Subject(call, size) for label, call in subjects.items()},
        claims=[Claim(ours, peer, 1.0) for peer in peers],
        unit="B",
    )


def _small_tensor() -> Group:
    """What reaching a tensor's memory costs: the DLPack table, Python's attributes, torch."""
    tensor = torch.randn(4, 4)
    by_table, by_address = xorsig.fingerprint_tensor, xorsig.fingerprint
    subjects = {
        "fingerprint_tensor": lambda: by_table(tensor),
        "fingerprint by attributes": lambda: by_address(
            tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.itemsize
        ),
        "torch.hash_tensor": lambda: torch.hash_tensor(tensor),
        "tensor.data_ptr()": tensor.data_ptr,
    }
    ours, *peers = subjects
    return Group(
        name="tensor of 16 floats",
        subjects={label: Subject(call) for label, call in subjects.items()},
        claims=[Claim(ours, peer) for peer in peers],
    )


def _never() -> None:
    raise AssertionError("the Rust program has timed this")
