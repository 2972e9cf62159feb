"""Digests of the random generators that a call may have moved; reading moves none."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch

import xorsig


class RandomState:
    """Digests of the global generators of torch (CPU and CUDA), numpy and ``random``."""

    def __init__(self) -> None:
        self._numpy_generator: Any = None
        self._numpy_address = 0

    def digests(self, python_too: bool) -> dict[str, str]:
        """Digest per generator, by slot name.

        Args:
            python_too: Also read ``random`` and numpy, which no torch operation moves; reading
                ``random`` copies its 625 numbers.

        Returns:
            ``{"rng.torch": hex, ...}``; two digests are equal when the generators are in the same
            state.
        """
        found = {"rng.torch": _tensor_digest(torch.default_generator.get_state())}
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            for index, generator in enumerate(torch.cuda.default_generators):
                found[f"rng.cuda[{index}]"] = _tensor_digest(generator.get_state())
        if python_too:
            _, internal, gauss = random.getstate()
            # Hashes of integers and floats are the same in every process; that of None is not.
            state = hash((internal, gauss is None, gauss or 0.0))
            found["rng.python"] = f"{state & 0xFFFFFFFFFFFFFFFF:016x}"
            digest = self._numpy()
            if digest is not None:
                found["rng.numpy"] = digest
        return found

    def _numpy(self) -> str | None:
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
        return xorsig.fingerprint(self._numpy_address, (625,), (1,), 4, 1).hex()


def _tensor_digest(state: torch.Tensor) -> str:
    return xorsig.fingerprint(state.data_ptr(), (state.numel(),), (1,), 1, 1).hex()
