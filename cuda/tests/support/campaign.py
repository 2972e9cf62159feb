"""Building and running the driver program of the emulated kernels."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

import opguard_cuda_build

DRIVER = Path(__file__).resolve().parents[1] / "driver.cpp"
# Tiles of 2 KiB, so that small tensors meet the boundaries of tiles, blocks and regions.
SMALL_TILES = ("-DOPGUARD_THREADS=64", "-DOPGUARD_UNROLL=2", "-O1", "-g1")
LIMIT_S = 600


class Build(NamedTuple):
    """A way to build the driver, and what to run with it.

    Attributes:
        flags: Of the compiler.
        runs: Arguments of each run that a defect has to be noticed by.
        thorough: Arguments of further runs, for the kernels as they are.
    """

    flags: tuple[str, ...]
    runs: tuple[tuple[str, ...], ...]
    thorough: tuple[tuple[str, ...], ...] = ()


BUILDS = {
    "values": Build(
        SMALL_TILES,
        (("small", "140"), ("tiles", "200")),
        (("exhaustive", "80"), ("random", "60")),
    ),
    "memory": Build(
        ("-fsanitize=address,undefined", *opguard_cuda_build.SANITIZERS, *SMALL_TILES),
        (("small", "140"), ("tiles", "200")),
    ),
    "races": Build(("-fsanitize=thread", *SMALL_TILES), (("threads", "24"),)),
    "large": Build((), (("large",),), (("whole",), ("small", "300"), ("tiles", "600"))),
}


def build(name: str, folder: Path, sources: Path = opguard_cuda_build.SOURCES) -> Path:
    """Build the driver in one of the ways.

    Args:
        name: A key of ``BUILDS``.
        folder: Where to put the program.
        sources: The kernels' sources.

    Returns:
        The program.
    """
    program = folder / name
    # A defect may leave something unused, which is no reason not to run it.
    flags = (*BUILDS[name].flags, "-Wno-error")
    opguard_cuda_build.build_emulation(program, *flags, sources=sources, driver=DRIVER)
    return program


def run(name: str, program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a driver; a run beyond the time limit counts as failed."""
    # The thread sanitizer needs addresses where it expects them.
    fixed = ("setarch", "--addr-no-randomize") if name == "races" else ()
    command = [*fixed, str(program), *arguments]
    try:
        return subprocess.run(
            command,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            env={"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "halt_on_error=1"},
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, f"no end after {LIMIT_S} s")
