"""What checksums cannot see: changed tensors that keep their value, counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from harness import Area, Figure, Group, Settings
from harness.optional import optional
from numpy.random import Generator
from numpy.typing import NDArray

import xorsig

TRIALS = 10_000
SEED = 2026

Floats = NDArray[np.float32]
Pair = tuple[Floats, Floats]
Checksum = Callable[[Floats], object]


def area(settings: Settings) -> Area:
    """Misses of each checksum for each kind of change."""
    notes: list[str] = []
    return Area("changes that leave a checksum as it was", _groups(settings, notes), notes)


def _groups(settings: Settings, notes: list[str]) -> Iterator[Group]:
    checksums = _checksums(notes)
    trials = 20 if settings.smoke else TRIALS
    notes.append(f"misses of {trials} trials each:")
    notes.append("| change | " + " | ".join(checksums) + " |")
    notes.append("|---" * (len(checksums) + 1) + "|")
    for kind, change in CHANGES.items():
        misses = _misses(change, checksums, trials)
        notes.append(f"| {kind} | " + " | ".join(map(str, misses.values())) + " |")
        figures = [
            # The mixed scheme misses one change in about 2**32: none of these.
            Figure(name, count, f"of {trials}", at_most=0 if "mixed" in name else None)
            for name, count in misses.items()
        ]
        yield Group(name=kind, subjects={}, collect=dict, figures=lambda _, found=figures: found)


def _checksums(notes: list[str]) -> dict[str, Checksum]:
    checksums: dict[str, Checksum] = {
        "plain, R=1": lambda array: xorsig.region_xor(array, 1),
        "plain, R=4": lambda array: xorsig.region_xor(array, 4),
        "mixed, R=1": lambda array: xorsig.region_mix(array, 1),
        "mixed, R=4": lambda array: xorsig.region_mix(array, 4),
        "torch.hash_tensor": lambda array: torch.hash_tensor(torch.from_numpy(array)).item(),
    }
    crc = optional("google_crc32c", notes)
    if crc is not None:
        checksums["crc32c"] = lambda array: crc.value(array.tobytes())
    return checksums


def _misses(
    change: Callable[[Generator], Pair], checksums: dict[str, Checksum], trials: int
) -> dict[str, int]:
    random = np.random.default_rng(SEED)
    misses = dict.fromkeys(checksums, 0)
    for _ in range(trials):
        before, after = change(random)
        while before.tobytes() == after.tobytes():
            # Equal by chance, such as a word swapped with itself: draw again.
            before, after = change(random)
        for name, checksum in checksums.items():
            misses[name] += checksum(before) == checksum(after)
    return misses


def _tensor(random: Generator) -> Floats:
    """Normal numbers; both lengths even, 8 to 48."""
    rows, columns = 2 * random.integers(4, 25, 2)
    return random.standard_normal((rows, columns), np.float32)


def _words(array: Floats) -> NDArray[np.uint32]:
    """The words of a contiguous array, as a flat view."""
    return array.reshape(-1).view(np.uint32)


def _two(random: Generator, count: int) -> tuple[int, int]:
    first, second = random.choice(count, 2, replace=False)
    return int(first), int(second)


def constant(random: Generator) -> Pair:
    """All elements equal; another constant."""
    shape = _tensor(random).shape
    first, second = random.standard_normal(2, np.float32)
    return np.full(shape, first), np.full(shape, second)


def words_swapped(random: Generator) -> Pair:
    """Two words swapped."""
    before = _tensor(random)
    after = before.copy()
    first, second = _two(random, before.size)
    words = _words(after)
    words[[first, second]] = words[[second, first]]
    return before, after


def rows_swapped(random: Generator) -> Pair:
    """Two rows swapped."""
    before = _tensor(random)
    after = before.copy()
    first, second = _two(random, len(before))
    after[[first, second]] = before[[second, first]]
    return before, after


def flipped(random: Generator) -> Pair:
    """Rows reversed."""
    before = _tensor(random)
    return before, np.ascontiguousarray(before[:, ::-1])


def transposed(random: Generator) -> Pair:
    """The transpose's elements in order."""
    before = _tensor(random)
    return before, np.ascontiguousarray(before.T).reshape(before.shape)


def same_bit_in_two_words(random: Generator) -> Pair:
    """One bit position flipped in two words."""
    before = _tensor(random)
    after = before.copy()
    _words(after)[list(_two(random, before.size))] ^= np.uint32(1 << int(random.integers(32)))
    return before, after


def halves_changed_alike(random: Generator) -> Pair:
    """Two equal halves, an element changed in both."""
    half = _tensor(random)
    changed = half.copy()
    changed.flat[random.integers(half.size)] = random.standard_normal()
    return np.concatenate([half, half]), np.concatenate([changed, changed])


def one_bit(random: Generator) -> Pair:
    """One bit flipped."""
    before = _tensor(random)
    after = before.copy()
    _words(after)[random.integers(before.size)] ^= np.uint32(1 << int(random.integers(32)))
    return before, after


def negative_zeros(random: Generator) -> Pair:
    """The zeros of a rectified tensor become -0.0."""
    before = np.maximum(_tensor(random), np.float32(0))
    return before, np.where(before == 0, np.float32(-0.0), before)


def nan_payload(random: Generator) -> Pair:
    """The payload of one NaN changed."""
    before = _tensor(random)
    after = before.copy()
    at = random.integers(before.size)
    for array in (before, after):
        _words(array)[at] = 0x7FC0_0000 | int(random.integers(1 << 22))
    return before, after


def shifted(random: Generator) -> Pair:
    """All words one place on, the last to the front."""
    before = _tensor(random)
    return before, np.roll(before, 1)


CHANGES: dict[str, Callable[[Generator], Pair]] = {
    "constant tensor, other constant": constant,
    "two words swapped": words_swapped,
    "two rows swapped": rows_swapped,
    "rows flipped": flipped,
    "transposed": transposed,
    "same bit flipped in two words": same_bit_in_two_words,
    "both equal halves changed alike": halves_changed_alike,
    "one bit flipped": one_bit,
    "-0.0 for 0.0": negative_zeros,
    "payload of a NaN changed": nan_payload,
    "shifted by one word": shifted,
}
