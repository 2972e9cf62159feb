"""Reads the machine code of the built kernels: resources, instructions, loops."""

from __future__ import annotations

import functools
import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import opguard_cuda_build

_FUNCTION = re.compile(r"^\s*Function : (\S+)\s*$", re.MULTILINE)
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+([^;]+);")
_RESOURCES = re.compile(
    r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", re.MULTILINE
)


class Instruction(NamedTuple):
    """One instruction.

    Attributes:
        address: In bytes from the kernel's begin.
        predicate: ``@P0`` and the like, or empty.
        name: With its modifiers, ``LDG.E.128`` for one.
        operands: The rest of the line.
    """

    address: int
    predicate: str
    name: str
    operands: str


class Resources(NamedTuple):
    """What a thread or block of a kernel takes.

    Attributes:
        registers: Of a thread.
        stack_bytes: Of a thread.
        shared_bytes: Of a block.
        local_bytes: Of a thread.
    """

    registers: int
    stack_bytes: int
    shared_bytes: int
    local_bytes: int


@functools.cache
def _cuobjdump(*arguments: str) -> str:
    root = opguard_cuda_build.toolkit()
    process = subprocess.run(
        [str(root / "bin" / "cuobjdump"), *arguments],
        env={"PATH": f"{root / 'bin'}:/usr/bin:/bin"},
        check=True,
        text=True,
        capture_output=True,
    )
    return process.stdout


def embedded(library: Path) -> list[str]:
    """Names of the machine and intermediate codes in a library, as ``sm_80`` or ``ptx sm_80``."""
    machine = re.findall(r"\.(sm_\d+)\.cubin", _cuobjdump("--list-elf", str(library)))
    portable = re.findall(r"\.(sm_\d+)\.ptx", _cuobjdump("--list-ptx", str(library)))
    return [*machine, *(f"ptx {name}" for name in portable)]


def resources(library: Path, architecture: str) -> dict[str, Resources]:
    """Resources of every kernel for one architecture, ``90`` for one."""
    text = _cuobjdump(
        "--dump-resource-usage", "--gpu-architecture", f"sm_{architecture}", str(library)
    )
    return {name: Resources(*map(int, numbers)) for name, *numbers in _RESOURCES.findall(text)}


def kernels(library: Path, architecture: str) -> dict[str, list[Instruction]]:
    """Instructions of every kernel for one architecture."""
    text = _cuobjdump("--dump-sass", "--gpu-architecture", f"sm_{architecture}", str(library))
    pieces = _FUNCTION.split(text)
    return {
        name: [_instruction(*found) for found in _INSTRUCTION.findall(body)]
        for name, body in zip(pieces[1::2], pieces[2::2], strict=True)
    }


def _instruction(address: str, text: str) -> Instruction:
    words = text.split(None, 2) if text.startswith("@") else ["", *text.split(None, 1)]
    predicate, name, operands = (*words, "", "")[:3]
    return Instruction(int(address, 16), predicate, name, operands.strip())


def loops(instructions: Sequence[Instruction]) -> list[list[Instruction]]:
    """Bodies of the loops, in order; a loop is what lies between a backward branch and its target.

    A branch to itself, which pads the end of a kernel, is none.
    """
    found = []
    for last in instructions:
        target = re.search(r"0x([0-9a-f]+)", last.operands)
        if last.name.startswith("BRA") and target is not None:
            first = int(target[1], 16)
            if first < last.address:
                found.append([i for i in instructions if first <= i.address <= last.address])
    return found


def main_loop(instructions: Sequence[Instruction]) -> list[Instruction]:
    """The loop over whole tiles: the shortest one with several 16-byte loads.

    Raises:
        ValueError: There is none.
    """
    candidates = [body for body in loops(instructions) if len(vector_loads(body)) > 1]
    if not candidates:
        raise ValueError("no loop with several 16-byte loads")
    return min(candidates, key=len)


def vector_loads(instructions: Sequence[Instruction]) -> list[Instruction]:
    """The 16-byte loads from global memory."""
    return [i for i in instructions if i.name.startswith("LDG") and ".128" in i.name]


def loads_before_use(body: Sequence[Instruction]) -> int:
    """How many 16-byte loads a loop's body issues before it uses what the first ones bring."""
    loads = vector_loads(body)
    arriving: set[int] = set()
    issued = 0
    for instruction in body:
        if arriving & _read_registers(instruction):
            break
        if instruction in loads:
            issued += 1
            first = int(instruction.operands.partition(",")[0].removeprefix("R"))
            arriving.update(range(first, first + 4))
    return issued


def _read_registers(instruction: Instruction) -> set[int]:
    operands = instruction.operands.split(",")
    # The first register is written; a shuffle has a predicate before it.
    read = operands[2:] if instruction.name.startswith("SHFL") else operands[1:]
    return {int(number) for part in read for number in re.findall(r"\bR(\d+)\b", part)}


def counts(instructions: Sequence[Instruction]) -> Counter[str]:
    """How often each instruction occurs, without its modifiers."""
    return Counter(i.name.split(".")[0] for i in instructions)
