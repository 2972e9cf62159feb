"""Hand-written captures: a few lines of Python become the tables that a recorder would write.

A side is a ``Recording``. Calls are opened and closed like the calls they stand for, so that ticks
and nesting come out as in a real run::

    run = Recording()
    with run.nest("loss", inputs={"arg[0]": "x"}, outputs={"out": "l"}):
        run.call("inner", outputs={"out": "i"})

Tensors are written as text: equal text, equal bytes. ``name:dtype:shape`` overrides dtype and
shape, ``?note`` is a tensor whose bytes were not read, ``=text`` a value that is no tensor.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from opguard.tools.compare import Callsite, CaptureView, RankEnding, RankTables
from opguard.tools.compare.capture import (
    CALLS_SCHEMA,
    LAYOUTS_SCHEMA,
    MARKS_SCHEMA,
    TENSORS_SCHEMA,
    VALUES_SCHEMA,
)
from opguard.tools.compare.places import LibrarySources, read_places
from opguard.tools.digests import sha256

INPUT, OUTPUT, EFFECT_BEFORE, EFFECT_AFTER, GRADIENT, RNG_BEFORE, RNG_AFTER = range(7)
FORWARD, BACKWARD, OPTIMIZER = range(3)
Slots = Mapping[str, str]


@dataclass(frozen=True)
class Key:
    """A statement's place in the alignment of both sources."""

    kind: str
    number: int
    file_key: str = "train.py"


@dataclass(frozen=True)
class HandAlignment:
    """An alignment written by hand."""

    baseline: Mapping[tuple[str, int, int], Key]
    candidate: Mapping[tuple[str, int, int], Key]


@dataclass
class Recording:
    """One rank of one side; every distinct callee is a callsite on a line of its own."""

    regions: int = 4
    step: int = 0
    sites: dict[str, int] = field(default_factory=dict)
    loops: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    libraries: dict[str, bytes] = field(default_factory=dict)
    places: list[dict[str, Any]] = field(default_factory=list)
    _calls: dict[int, dict[str, object]] = field(default_factory=dict)
    _tensors: list[dict[str, object]] = field(default_factory=list)
    _values: list[dict[str, object]] = field(default_factory=list)
    _stack: list[int] = field(default_factory=list)
    _tick: int = 0

    def tick(self) -> int:
        """Advance the rank's counter."""
        self._tick += 1
        return self._tick

    @contextmanager
    def nest(
        self,
        callee: str,
        *,
        inputs: Slots | None = None,
        outputs: Slots | None = None,
        values: Slots | None = None,
        before: Slots | None = None,
        after: Slots | None = None,
        rng: Mapping[str, tuple[str, str]] | None = None,
        phase: int = FORWARD,
        flags: int = 0,
        thread: int = 7,
        error: str | None = None,
        ends: bool = True,
        name: str | None = None,
    ) -> Iterator[int]:
        """Record a call; calls made inside the block are its children."""
        call = len(self._calls) + 1
        begin = self.tick()
        self._calls[call] = {
            "call": call,
            "parent": self._stack[-1] if self._stack else 0,
            "site": self.sites.setdefault(callee, len(self.sites)),
            "step": self.step,
            "phase": phase,
            "thread": thread,
            "flags": flags,
            "callee": name or callee,
            "tick_begin": begin,
            "time_begin_ns": begin * 1000,
        }
        self._put(call, INPUT, inputs)
        self._put(call, INPUT, {slot: f"={text}" for slot, text in (values or {}).items()})
        self._put(call, EFFECT_BEFORE, before)
        for generator, (old, _) in (rng or {}).items():
            self._put(call, RNG_BEFORE, {generator: f"={old}"})
        self._stack.append(call)
        yield call
        self._stack.pop()
        if not ends:
            return
        self._put(call, OUTPUT, outputs)
        self._put(call, EFFECT_AFTER, after)
        for generator, (_, new) in (rng or {}).items():
            self._put(call, RNG_AFTER, {generator: f"={new}"})
        end = self.tick()
        self._calls[call] |= {
            "tick_end": end,
            "time_end_ns": end * 1000,
            "status": int(error is not None),
            "error": error,
        }

    def call(self, callee: str, **what: object) -> int:
        """Record a call without calls inside."""
        with self.nest(callee, **what) as call:  # type: ignore[arg-type]
            pass
        return call

    def item(self, loader: str, text: str | None, **what: object) -> int:
        """Record that a ``for`` over ``loader`` fetched an item, or with None that it ended."""
        self.loops.add(loader)
        what |= {"error": "StopIteration"} if text is None else {"outputs": {"out": text}}
        return self.call(loader, name="__next__", **what)

    def library(self, name: str, source: str) -> None:
        """Give a file of a library; its places are the lines of it."""
        self.libraries[name] = source.encode()

    def place(self, name: str, text: str, outer: int = 0) -> int:
        """The number of a place: where ``text`` stands in a library's file, in any function."""
        lines = self.libraries[name].decode().split("\n")
        number = next(n for n, line in enumerate(lines, 1) if text in line)
        column = lines[number - 1].index(text)
        digest = sha256(self.libraries[name])
        description = {
            "outer": outer,
            "file": f"/env/{name}",
            "name": name,
            "qualname": "function",
            "position": [number, number, column, column + len(text)],
            "source": digest,
        }
        self.places.append(description)
        return len(self.places)

    def operator(self, inside: str, operator: str, place: int, **what: object) -> int:
        """Record an operator that a library ran in a call of the callsite ``inside``."""
        return self.call(inside, flags=16, name=f"{operator}@{place}", **what)

    def gradient(self, call: int, slot: str, text: str) -> None:
        """Record a gradient that reaches an output of an earlier call."""
        self._put(call, GRADIENT, {slot: text})

    def _put(self, call: int, role: int, slots: Slots | None) -> None:
        for slot, text in (slots or {}).items():
            record = {"call": call, "tick": self.tick(), "role": role, "slot": slot}
            if text.startswith("="):
                self._values.append(record | {"value": text[1:]})
            else:
                self._tensors.append(record | tensor(text, self.regions))

    def tables(self, incomplete: str | None = None) -> RankTables:
        """The tables of this rank."""
        return RankTables(
            pl.DataFrame(
                list(self._calls.values()), schema=CALLS_SCHEMA | {"tick_begin": pl.UInt64}
            ),
            pl.DataFrame(self._tensors, schema=TENSORS_SCHEMA | LAYOUTS_SCHEMA),
            pl.DataFrame(self._values, schema=VALUES_SCHEMA),
            marks := pl.DataFrame(
                [self._note(text) for text in self.failures] + self._place_marks(),
                schema=MARKS_SCHEMA,
            ),
            incomplete,
            read_places(marks),
        )

    def _place_marks(self) -> list[dict[str, object]]:
        return [
            {"tick": number, "time_ns": 0, "kind": 4, "step": 0, "name": str(number)}
            | {"value": json.dumps(description)}
            for number, description in enumerate(self.places, 1)
        ]

    def _note(self, text: str) -> dict[str, object]:
        note = {"kind": 2, "step": self.step, "name": "recorder failure", "value": text}
        return note | {"tick": self.tick(), "time_ns": self._tick * 1000}


def tensor(text: str, regions: int = 4) -> dict[str, object]:
    """Columns of a tensor record; signatures follow from the text's name."""
    note = text[1:] if text.startswith("?") else None
    name, dtype, shape = (*text.split(":"), "", "")[:3]
    sizes = [int(size) for size in shape.split("x")] if shape else [4, 4]
    count = 1
    for size in sizes:
        count *= size
    words = [zlib.crc32(f"{name}/{region}".encode()) for region in range(regions)]
    return {
        "dtype": dtype or "float32",
        "shape": sizes,
        "strides": None,
        "device": "cpu",
        "kind": "strided",
        "logical_nbytes": count * 4,
        "xor_sig": None if note else words,
        "mix_sig": None if note else [word ^ 0xFFFF for word in words],
        "note": note,
    }


def callsites(recording: Recording, operators: Mapping[str, Sequence[str]]) -> dict[int, Callsite]:
    """One callsite per callee: ``callee(...)``, a statement on a line of its own."""
    return {
        number: Callsite(
            id=number,
            file="train.py",
            line=number + 1,
            end_line=number + 1,
            col=0,
            end_col=20,
            qualname="main",
            kind="iterate" if callee in recording.loops else "call",
            callee=callee.partition("#")[0],
            text=f"{callee.partition('#')[0]}(...)",
            statement=(number + 1, 0),
            ordinal=0,
            operators=tuple(operators.get(callee, ())),
        )
        for callee, number in recording.sites.items()
    }


def view(
    *ranks: Recording,
    incomplete: Mapping[int, str] | None = None,
    endings: Mapping[int, RankEnding] | None = None,
    operators: Mapping[str, Sequence[str]] | None = None,
    request: Mapping[str, Any] | None = None,
    receipts: Mapping[int, Mapping[str, Any]] | None = None,
) -> CaptureView:
    """A capture of the given ranks; they share their callsites, so record them in one order."""
    ends = endings or {}
    reasons = {rank: reason for rank, end in ends.items() if (reason := end.reason()) is not None}
    reasons |= incomplete or {}
    widest = max(ranks, key=lambda rank: len(rank.sites))
    sites = callsites(widest, operators or {})
    source = "".join(f"{site.text}\n" for site in sites.values()).encode()
    tables = {rank: found.tables(reasons.get(rank)) for rank, found in enumerate(ranks)}
    kept = {sha256(text): text for rank in ranks for text in rank.libraries.values()}
    return CaptureView(
        sites,
        {"train.py": source},
        tables,
        reasons,
        ends,
        receipts or {},
        request or {},
        LibrarySources(_known=kept),
    )


def align_by_callee(
    baseline: CaptureView, candidate: CaptureView, changed: Mapping[str, int] | None = None
) -> HandAlignment:
    """Statements correspond when their callee is on both sides, except those in ``changed``.

    Args:
        baseline: One side.
        candidate: The other side.
        changed: Number of the changed block, by the callee of the statement.
    """
    blocks = {callee.partition("#")[0]: number for callee, number in (changed or {}).items()}
    numbers: dict[str, int] = {}
    sides = (
        {s.callee for s in baseline.sites.values()},
        {s.callee for s in candidate.sites.values()},
    )
    keys: list[dict[tuple[str, int, int], Key]] = []
    for capture in (baseline, candidate):
        statements: dict[tuple[str, int, int], Key] = {}
        for site in capture.sites.values():
            if site.callee in blocks:
                key = Key("changed", blocks[site.callee])
            elif site.callee in sides[0] & sides[1]:
                key = Key("shared", numbers.setdefault(site.callee, len(numbers)))
            else:
                key = Key("changed", 1000)
            statements[site.file, *site.statement] = key
        keys.append(statements)
    return HandAlignment(*keys)
