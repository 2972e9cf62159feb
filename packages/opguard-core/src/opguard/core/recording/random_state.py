"""Digests of the random generators that a call may have moved; reading moves none."""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from typing import Any

import torch

import xorsig

_WORDS = 624
"""Words of the state of the Mersenne Twister."""


class RandomState:
    """Digests of the global generators of torch (CPU and CUDA), numpy and ``random``."""

    def __init__(self) -> None:
        self._python_generator: Any = None
        self._python_address = 0
        self._numpy_generator: Any = None
        self._numpy_address = 0

    def digests(self, python_too: bool) -> dict[str, str]:
        """Digest per generator, by slot name.

        Args:
            python_too: Also read ``random`` and numpy, which no torch operation moves.

        Returns:
            ``{"rng.torch": hex, ...}``; two digests are equal when the generators are in the same
            state.
        """
        found = {"rng.torch": _tensor_digest(torch.default_generator.get_state())}
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            for index, generator in enumerate(torch.cuda.default_generators):
                found[f"rng.cuda[{index}]"] = _tensor_digest(generator.get_state())
        if python_too:
            for slot, source in (
                ("rng.python", self.python_source()),
                ("rng.numpy", self.numpy_source()),
            ):
                if source is not None:
                    found[slot] = source if isinstance(source, str) else _words_digest(source)
        return found

    def python_source(self) -> int | str:
        """Address of the state of ``random``, 625 words; where it has more of it, a digest."""
        generator: Any = random._inst
        if generator is not self._python_generator:
            self._python_generator = generator
            self._python_address = _state_address(generator)
        if not self._python_address:
            _, internal, gauss = random.getstate()
            # Hashes of integers and floats are the same in every process; that of None is not.
            state = hash((internal, gauss is None, gauss or 0.0))
            return f"{state & 0xFFFFFFFFFFFFFFFF:016x}"
        gauss = generator.gauss_next
        if gauss is None:
            return self._python_address
        return f"{_words_digest(self._python_address)} {gauss!r}"

    def numpy_source(self) -> int | None:
        """Address of the state of numpy's global generator, 625 words, if there is one."""
        numpy_random = sys.modules.get("numpy.random")
        if numpy_random is None:
            return None
        generator = numpy_random.mtrand._rand._bit_generator
        if type(generator).__name__ != "MT19937":
            return None
        if generator is not self._numpy_generator:
            # The state is the C struct {uint32 key[624]; int pos;}: 2500 bytes, read in place.
            self._numpy_generator = generator
            self._numpy_address = generator.ctypes.state_address
        return self._numpy_address


def _words_digest(address: int) -> str:
    return xorsig.fingerprint(address, (_WORDS + 1,), (1,), 4, 1).hex()


def _tensor_digest(state: torch.Tensor) -> str:
    return xorsig.fingerprint(state.data_ptr(), (state.numel(),), (1,), 1, 1).hex()


def _state_address(generator: random.Random) -> int:
    """Address of position and words of a generator's state inside its object; 0 if not found.

    CPython keeps them as ``{int index; uint32_t state[624];}``. Reading them there costs a
    hundredth of ``getstate``, which makes 625 integers. Their place is searched for, so that
    another layout is noticed.
    """
    if type(generator) is not random.Random:
        return 0
    *words, index = generator.getstate()[1]
    expected = struct.pack(f"={_WORDS + 1}I", index, *words)
    held = ctypes.string_at(id(generator), type(generator).__basicsize__)
    offset = held.find(expected)
    return id(generator) + offset if offset > 0 else 0
