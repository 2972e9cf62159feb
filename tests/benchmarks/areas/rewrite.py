"""Instrumenting source, its proof included, against compiling it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from harness import Area, Claim, Group, Settings, Subject

from opguard.tools.source import Site, instrument

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from opguard_sites import all_sites

FOLDERS = ("nn/modules", "optim")
"""Of torch: some 35,000 lines that are installed wherever this runs."""


def area(settings: Settings) -> Area:
    """One group per choice of callsites."""
    folder = Path(torch.__file__).parent
    files = sorted(path for name in FOLDERS for path in (folder / name).glob("*.py"))
    sources = [path.read_bytes() for path in files]
    if settings.smoke:
        sources = sources[:3]
    lines = sum(map(_lines, sources))
    notes = [
        f"{lines:,} lines of torch/nn/modules and torch/optim; in the example of this repository a "
        "quarter of the expressions that can be wrapped are callsites"
    ]
    return Area("instrumenting source, in multiples of compiling it", _groups(sources), notes)


def _groups(sources: list[bytes]) -> Iterator[Group]:
    choices: dict[str, tuple[Callable[[Site], bool], float | None]] = {
        "a quarter of the expressions": (_quarter, 4.0),
        "every call": (lambda site: site.kind == "call", None),
        "every expression": (lambda site: True, None),
    }
    found = [(source, all_sites(source)) for source in sources]
    for name, (chosen, target) in choices.items():
        work = [(source, [site for site in sites if chosen(site)]) for source, sites in found]
        work = [(source, sites) for source, sites in work if sites]

        def instrumented(work: list[tuple[bytes, list[Site]]] = work) -> None:
            for source, sites in work:
                instrument(source, sites)

        def compiled(work: list[tuple[bytes, list[Site]]] = work) -> None:
            for source, _ in work:
                compile(source, "source.py", "exec", dont_inherit=True)

        lines = sum(_lines(source) for source, _ in work)
        yield Group(
            name=f"{name} ({sum(len(sites) for _, sites in work):,} callsites)",
            subjects={
                "instrument": Subject(instrumented, lines),
                "compile": Subject(compiled, lines),
            },
            claims=[Claim("instrument", "compile", target, ratio="time")],
            unit="lines",
        )


def _lines(source: bytes) -> int:
    return source.count(b"\n")


def _quarter(site: Site) -> bool:
    """Every other expression of every other line."""
    return site.line % 2 == 0 and site.ordinal % 2 == 0
