"""The emulated device seen from Python: the library's own binding, and what tests set and read."""

from __future__ import annotations

import ctypes

import numpy as np

from opguard.core.cuda.library import BOTH, NO_STATISTICS, Library, Plan, Statistics

GUARD = 0xDEADBEEF


def noise(nbytes: int, seed: int = 0) -> np.ndarray:
    """Random bytes that start at a multiple of 16, with 16 to spare."""
    memory = np.random.default_rng(seed).integers(0, 256, nbytes + 32, np.uint8)
    start = -memory.ctypes.data % 16
    return memory[start : start + nbytes + 16]


class EmulatedLibrary(Library):
    """The library for the emulated device, whose memory is the host's."""

    def __init__(self, path) -> None:
        super().__init__(path, "test")
        handle = ctypes.CDLL(str(path))
        handle.opguard_emulation_watch.argtypes = (ctypes.c_void_p, ctypes.c_uint64)
        handle.opguard_emulation_bytes_read.restype = ctypes.c_uint64
        handle.opguard_emulation_launches.restype = ctypes.c_uint64
        self.watch = handle.opguard_emulation_watch
        self.bytes_read = handle.opguard_emulation_bytes_read
        self.launches = handle.opguard_emulation_launches
        self.order = handle.opguard_emulation_order
        self.only_region = handle.opguard_emulation_only_region

    def values(
        self,
        data: np.ndarray,
        regions: int,
        schemes: int = BOTH,
        *,
        resident: int = 8,
        blocks: int | None = None,
    ) -> list[int]:
        """Values of a tensor's bytes; fails on reads outside them and writes beside the result."""
        plan = self.plan(data.nbytes, regions, schemes, resident)
        if blocks is not None:
            plan.blocks_per_region = blocks
        return self.run(plan, data)[0]

    def statistics(
        self, data: np.ndarray, element: int, *, regions: int = 4, resident: int = 8
    ) -> tuple[list[int], Statistics]:
        """Values and statistics of a tensor's bytes."""
        return self.run(self.plan(data.nbytes, regions, BOTH, resident, element), data)

    def run(self, plan: Plan, data: np.ndarray) -> tuple[list[int], Statistics]:
        """Run a plan."""
        count = plan.regions * (2 if plan.schemes == BOTH else 1)
        out = np.full(count + 2, GUARD, np.uint32)
        workspace = np.full(80 * plan.regions * plan.blocks_per_region + 8, 0xAB, np.uint8)
        statistics = Statistics()
        self.watch(data.ctypes.data, data.nbytes)
        self.launch(
            plan,
            data.ctypes.data,
            out.ctypes.data + 4,
            workspace.ctypes.data,
            workspace.nbytes,
            0,
            0,
            None if plan.element == NO_STATISTICS else ctypes.addressof(statistics),
        )
        assert out[0] == out[-1] == GUARD
        return out[1:-1].tolist(), statistics
