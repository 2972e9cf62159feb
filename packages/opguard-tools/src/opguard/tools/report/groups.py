"""Origins at the same place: one entry for people, all of them in the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def note_repeats(origins: Sequence[dict[str, Any]]) -> None:
    """Mark origins that are of the same kind at the same pair of callsites.

    The earliest of them, by step, gets ``repeats``: how many others there are, on which ranks, and
    in which steps as inclusive ranges. Each of the others gets ``repeat_of``, the position of the
    earliest in the list. Both are null where they do not apply.

    Args:
        origins: Entries of the document; changed in place.
    """
    groups: dict[str, list[int]] = {}
    for index, origin in enumerate(origins):
        origin["repeats"] = origin["repeat_of"] = None
        groups.setdefault(_place(origin), []).append(index)
    for members in groups.values():
        first = min(members, key=lambda i: _moment(origins[i]))
        others = [index for index in members if index != first]
        for index in others:
            origins[index]["repeat_of"] = first
        if others:
            origins[first]["repeats"] = {
                "count": len(others),
                "ranks": sorted({origins[index]["rank"] for index in others}),
                "steps": _ranges({origins[index]["step"] for index in others}),
            }


def describe_repeats(origin: Mapping[str, Any]) -> str | None:
    """``also in steps 1-7``, with the ranks where they are others; None without repeats."""
    repeats = origin.get("repeats")
    if not repeats:
        return None
    steps = [str(low) if low == high else f"{low}-{high}" for low, high in repeats["steps"]]
    if repeats["steps"] == [[origin["step"], origin["step"]]]:
        count = repeats["count"]
        text = f"also {count} more {'time' if count == 1 else 'times'} in this step"
    else:
        single = len(steps) == 1 and "-" not in steps[0]
        text = f"also in {'step' if single else 'steps'} {', '.join(steps)}"
    if repeats["ranks"] != [origin["rank"]]:
        ranks = ", ".join(map(str, repeats["ranks"]))
        text += f" (rank {ranks})" if len(repeats["ranks"]) == 1 else f" (ranks {ranks})"
    return text


def other_unpaired(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Groups of calls on one side only, without those that an origin has named already."""
    return [group for group in document["unpaired"] if not group["of_origin"]]


def _place(origin: dict[str, Any]) -> str:
    """Kind and both callsites; a call on one side only has one."""
    sides = (origin["baseline"], origin["candidate"])
    return repr((origin["kind"], sides))


def _moment(origin: dict[str, Any]) -> tuple[int, int, int]:
    return origin["step"], origin["order"], origin["rank"]


def _ranges(steps: Iterable[int]) -> list[list[int]]:
    """Ascending steps as inclusive ranges."""
    ranges: list[list[int]] = []
    for step in sorted(steps):
        if ranges and step == ranges[-1][1] + 1:
            ranges[-1][1] = step
        else:
            ranges.append([step, step])
    return ranges
