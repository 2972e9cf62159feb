"""Figures of the kernels that follow from their machine code and from data sheets.

    python cuda/tools/opguard_cuda_figures.py LIBRARY           # prints the tables
    python cuda/tools/opguard_cuda_figures.py LIBRARY --write   # puts them into the documentation

They are predictions. What a device really does is measured by ``nox -s gpu``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import opguard_cuda_sass as sass

PAGE = Path(__file__).resolve().parents[2] / "docs" / "concepts" / "cuda.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"

KERNELS = ("opguard_plain", "opguard_plain_shifted", "opguard_both", "opguard_both_shifted")
WARP = 32
BLOCK_THREADS = 256
LOAD_BYTES = 16
UNROLL = 4
# Bytes that a warp takes in one turn of the main loop.
TURN_BYTES = WARP * LOAD_BYTES * UNROLL
REGISTERS = 65_536
REGISTER_UNIT = 256  # registers are given to warps in such pieces

# Seconds from a load to its data under traffic, and of a launch with its second one; both assumed.
LATENCY_S = 0.7e-6
FIXED_S = 4e-6

# Instructions by the unit that executes them; everything else counts for the issue slots alone.
LOGIC = {"LOP3", "SHF", "SEL", "LEA", "ISETP", "PLOP3", "FSEL"}
ADD = {"IADD3", "VIADD", "IADD"}
MULTIPLY = {"IMAD"}


class Part(NamedTuple):
    """A device.

    Attributes:
        name: As its vendor calls it.
        architecture: Compute capability without the dot.
        processors: Streaming multiprocessors.
        clock_hz: Boost clock.
        bytes_per_s: Memory bandwidth.
        threads: Of a processor at once.
        adds: 32-bit additions of a processor a clock; logic, shifts and products are 64.
    """

    name: str
    architecture: str
    processors: int
    clock_hz: float
    bytes_per_s: float
    threads: int
    adds: int


# Data sheets of the vendor; rates from the CUDA guide's table of arithmetic throughput.
PARTS = (
    Part("A100 80 GB", "80", 108, 1.41e9, 2.04e12, 2048, 64),
    Part("H100 SXM", "90", 132, 1.98e9, 3.35e12, 2048, 64),
    Part("H200", "90", 132, 1.98e9, 4.8e12, 2048, 64),
    Part("B200", "100", 148, 1.965e9, 8.0e12, 2048, 64),
    Part("RTX 5090", "120", 170, 2.41e9, 1.79e12, 1536, 128),
)
# What a read can reach of the data sheet's bandwidth: a copy on an H200 was seen at 4.3 TB/s.
REACHABLE = 0.9


class Figures(NamedTuple):
    """Figures of a kernel on a device.

    Attributes:
        registers: Of a thread.
        resident_threads: Of a processor.
        flight_bytes: Loads that a processor can have in flight.
        needed_bytes: Loads in flight that the bandwidth needs, by Little's law.
        instructions: Of a warp for one turn of the main loop.
        unit_share: Use of the busiest arithmetic unit at the reachable bandwidth.
        issue_share: Use of the issue slots at that bandwidth.
    """

    registers: int
    resident_threads: int
    flight_bytes: int
    needed_bytes: float
    instructions: int
    unit_share: float
    issue_share: float


def figures(library: Path, kernel: str, part: Part) -> Figures:
    """Figures of a kernel of a library on a device."""
    registers = sass.resources(library, part.architecture)[kernel].registers
    per_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    blocks = min(REGISTERS // per_warp // (BLOCK_THREADS // WARP), part.threads // BLOCK_THREADS)
    threads = blocks * BLOCK_THREADS
    body = sass.main_loop(sass.kernels(library, part.architecture)[kernel])
    counts = sass.counts(body)
    logic = sum(counts[name] for name in LOGIC)
    adds = sum(counts[name] for name in ADD)
    products = sum(counts[name] for name in MULTIPLY)
    # Clocks of a processor for one turn of one warp, per unit.
    unit_clocks = max(WARP * (logic / 64 + adds / part.adds), WARP * products / 64)
    issue_clocks = len(body) / 4
    turns_per_clock = part.bytes_per_s * REACHABLE / part.processors / part.clock_hz / TURN_BYTES
    return Figures(
        registers=registers,
        resident_threads=threads,
        flight_bytes=threads * LOAD_BYTES * UNROLL,
        needed_bytes=part.bytes_per_s * LATENCY_S / part.processors,
        instructions=len(body),
        unit_share=unit_clocks * turns_per_clock,
        issue_share=issue_clocks * turns_per_clock,
    )


def size_for(share: float, part: Part) -> float:
    """Bytes from which a tensor is read at a share of the reachable bandwidth.

    A read takes a fixed time and then goes at the reachable bandwidth.
    """
    return share / (1 - share) * FIXED_S * part.bytes_per_s * REACHABLE


def tables(library: Path) -> Iterator[str]:
    """Lines of the tables."""
    yield (
        "| device | kernel | registers | threads of a processor | in flight / needed, KiB "
        "| instructions per 2 KiB | busiest unit | issue slots |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for part in PARTS:
        for kernel in KERNELS:
            found = figures(library, kernel, part)
            yield (
                f"| {part.name} | `{kernel.removeprefix('opguard_')}` | {found.registers} "
                f"| {found.resident_threads} of {part.threads} "
                f"| {found.flight_bytes / 1024:.0f} / {found.needed_bytes / 1024:.0f} "
                f"| {found.instructions} | {found.unit_share:.0%} | {found.issue_share:.0%} |"
            )
    yield ""
    heads = ("device", "memory, TB/s", "reachable, TB/s", "90 % of that from", "`both`")
    yield f"| {' | '.join(heads)} | `both_shifted` |"
    yield "|---|---|---|---|---|---|"
    for part in PARTS:
        bounds = [_bound(figures(library, name, part)) for name in KERNELS[2:]]
        yield (
            f"| {part.name} | {part.bytes_per_s / 1e12:.2f} "
            f"| {part.bytes_per_s * REACHABLE / 1e12:.2f} "
            f"| {size_for(0.9, part) / 2**20:.0f} MiB | {bounds[0]} | {bounds[1]} |"
        )


def _bound(found: Figures) -> str:
    share = max(found.unit_share, found.issue_share)
    if share < 0.8:
        return "bound by memory"
    if share < 1:
        return "memory, with little to spare"
    return f"bound by arithmetic, at {1 / share:.0%} of reachable"


def page_with(library: Path, page: str) -> str:
    """A page's text with the tables between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join((before + BEGIN, "", *tables(library), "", END + after))


def main() -> None:
    """Print or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("library", type=Path)
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    arguments = parser.parse_args()
    if arguments.write:
        PAGE.write_text(page_with(arguments.library, PAGE.read_text()))
    else:
        print("\n".join(tables(arguments.library)))


if __name__ == "__main__":
    main()
