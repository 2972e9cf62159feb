"""What loaders yield: the same items in another order, or other items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from opguard.tools.compare.capture import Callsite
from opguard.tools.compare.circumstances import Circumstance, CircumstanceKind
from opguard.tools.compare.events import DifferenceEvent, EventKind, UnpairedCall
from opguard.tools.compare.fingerprints import FingerprintTable
from opguard.tools.compare.pairing import CallPair
from opguard.tools.compare.records import Call, CallFlag, Phase, RankRecords, Side

Item = tuple[tuple[str, int], ...]
"""One item: its slots with their interned fingerprints, in slot order."""


@dataclass(slots=True)
class _Loader:
    """A place that yields items on both sides: the callsite of a ``for``, or of ``next``.

    Attributes:
        differing: The first pair of items that differ.
        ending: The first pair of an item and the end of the other side's loop, if it comes first.
        equal_before: Pairs of equal items before either.
        items: All items of each side.
    """

    baseline: Callsite
    candidate: Callsite
    differing: CallPair | None = None
    ending: CallPair | None = None
    equal_before: int = 0
    items: dict[Side, list[Item]] = field(default_factory=dict)


def differing_data(
    pairs: Sequence[CallPair],
    events: Sequence[DifferenceEvent],
    unpaired: Sequence[UnpairedCall],
    records: Mapping[Side, RankRecords],
    sites: Mapping[Side, Mapping[int, Callsite]],
    fingerprints: FingerprintTable,
) -> Iterator[tuple[float, Circumstance]]:
    """Loaders whose items differ, each with its first differing item.

    An item made of values that were set side by side before, and differed, is computed rather
    than loaded; its difference is inherited.

    Args:
        pairs: Paired calls in the baseline's execution order.
        events: Differences of values in execution order.
        unpaired: Calls on one side only.
        records: All calls of both sides.
        sites: Callsites by id, per side.
        fingerprints: Table of both sides.

    Yields:
        Tick on the baseline's clock, and the circumstance.
    """
    modules = {side: _inside_modules(records[side].calls) for side in Side}
    loaders: dict[tuple[int, int], _Loader] = {}
    for pair in pairs:
        place = (pair.baseline.site, pair.candidate.site)
        known = loaders.get(place)
        if known is None:
            left = sites[Side.BASELINE].get(place[0])
            right = sites[Side.CANDIDATE].get(place[1])
            inside = pair.baseline.id in modules[Side.BASELINE]
            if left is None or right is None or inside or not _yields_items(left, pair.baseline):
                continue
            known = loaders[place] = _Loader(left, right)
        if known.differing is None and known.ending is None:
            items = _is_item(pair.baseline), _is_item(pair.candidate)
            if all(items) and _item(pair.baseline) != _item(pair.candidate):
                known.differing = pair
            elif any(items) and not all(items):
                known.ending = pair
            known.equal_before += all(items) and known.differing is None
    inherited = _inherited_items(events)
    for loader in loaders.values():
        if loader.differing is not None and loader.differing.baseline.id in inherited:
            continue
        loader.items = {
            side: [
                _item(call)
                for call in records[side].calls
                if call.site == site.id and _is_item(call)
            ]
            for side, site in ((Side.BASELINE, loader.baseline), (Side.CANDIDATE, loader.candidate))
        }
        if loader.differing is not None:
            yield loader.differing.baseline.begin, _differing_items(loader, fingerprints)
        elif not any(records[side].incomplete for side in Side):
            yield from _another_number(loader, unpaired)


def _yields_items(site: Callsite, call: Call) -> bool:
    """Whether a call fetches the next item of a loop or iterator, outside the model itself."""
    if call.phase != Phase.FORWARD or call.flags & CallFlag.OPERATOR or call.inputs:
        return False
    return call.name == "__next__" if site.kind == "iterate" else call.name == "next"


def _is_item(call: Call) -> bool:
    """Whether the call yielded an item made of data; the last one of a loop only ends it."""
    return (
        call.ended
        and call.error is None
        and call.name in ("__next__", "next")
        and not any(".param." in slot or ".buffer." in slot for slot in call.outputs)
    )


def _item(call: Call) -> Item:
    return tuple(sorted((s, v) for s, v in call.outputs.items() if s.startswith("out")))


def _inside_modules(calls: Iterable[Call]) -> set[int]:
    """Calls in the extent of a Module's call: iteration there is over layers or activations."""
    inside: set[int] = set()
    modules: set[int] = set()
    for call in calls:
        if call.parent in modules or call.parent in inside:
            inside.add(call.id)
        if call.flags & CallFlag.MODULE:
            modules.add(call.id)
    return inside


def _inherited_items(events: Sequence[DifferenceEvent]) -> set[int]:
    """Calls all of whose differing outputs stood against each other before they began."""
    first_seen: dict[tuple[int | None, int | None], float] = {}
    inherited: set[int] = set()
    for event in events:
        values = [(slot.baseline, slot.candidate) for slot in event.slots]
        begin = event.pair.baseline.begin
        if event.kind is EventKind.OUTPUT and all(
            first_seen.get(pair, begin) < begin for pair in values
        ):
            inherited.add(event.pair.baseline.id)
        for pair in values:
            first_seen.setdefault(pair, event.position)
    return inherited


def _differing_items(loader: _Loader, fingerprints: FingerprintTable) -> Circumstance:
    left, right = loader.items[Side.BASELINE], loader.items[Side.CANDIDATE]
    pair = loader.differing
    assert pair is not None
    subject = _subject(loader.baseline)
    first = f"first at item {loader.equal_before + 1} (step {pair.baseline.step})"
    if Counter(left) == Counter(right):
        kind = CircumstanceKind.DATA_ORDER
        text = f"{subject} yields the same {len(left)} items in another order, "
    elif _same_words(left, right, fingerprints):
        kind = CircumstanceKind.DATA_ORDER
        text = (
            f"{subject} yields the same data in another order: together its {len(left)} items "
            "hold the same words (as far as their XOR tells), "
        )
    else:
        kind = CircumstanceKind.DATA_CONTENT
        lacking = sum((Counter(left) - Counter(right)).values())
        text = (
            f"{lacking} of {len(left)} items that {subject} yields in the baseline are not among "
            f"the candidate's {len(right)}, "
        )
        if len(left) == len(right) and lacking == len(left):
            first += "; a shuffled part of one data set looks like this too"
    return Circumstance(
        kind,
        subject,
        text + first,
        f"{len(left)} items",
        f"{len(right)} items",
        step=pair.baseline.step,
        calls=(pair.baseline, pair.candidate),
    )


def _another_number(
    loader: _Loader, unpaired: Sequence[UnpairedCall]
) -> Iterator[tuple[float, Circumstance]]:
    left, right = (loader.items[side] for side in Side)
    if len(left) == len(right):
        return
    if loader.ending is not None:
        calls: tuple[Call | None, Call | None]
        calls = (loader.ending.baseline, loader.ending.candidate)
        position, step = float(loader.ending.baseline.begin), loader.ending.baseline.step
    else:
        site_of = {Side.BASELINE: loader.baseline.id, Side.CANDIDATE: loader.candidate.id}
        more = next(
            (u for u in unpaired if u.call.site == site_of[u.side] and _is_item(u.call)), None
        )
        if more is None:
            return
        calls = (more.call, None) if more.side is Side.BASELINE else (None, more.call)
        position, step = more.position, more.call.step
    subject = _subject(loader.baseline)
    text = (
        f"{subject} yields {len(left)} items in the baseline and {len(right)} in "
        "the candidate, equal as far as both go"
    )
    found = Circumstance(
        CircumstanceKind.DATA_CONTENT,
        subject,
        text,
        f"{len(left)} items",
        f"{len(right)} items",
        step=step,
        calls=calls,
    )
    yield position, found


def _same_words(
    left: Sequence[Item], right: Sequence[Item], fingerprints: FingerprintTable
) -> bool:
    """Whether all items together hold the same words, however samples are grouped into them.

    The plain scheme's value of a whole is the XOR of its words, so the XOR over all items does not
    depend on their order or on what is batched with what. Everything XORs to 0 says nothing.
    """
    totals = [_totals(items, fingerprints) for items in (left, right)]
    if None in totals or totals[0] != totals[1]:
        return False
    return any(word for words in totals for word, _ in (words or {}).values())


def _totals(
    items: Sequence[Item], fingerprints: FingerprintTable
) -> dict[tuple[str, str], tuple[int, int]] | None:
    """XOR of all words and number of bytes per slot and dtype; None when some were not read."""
    totals: dict[tuple[str, str], tuple[int, int]] = {}
    for item in items:
        for slot, identity in item:
            found = fingerprints[identity]
            if found.xor_sig is None:
                return None
            word, size = totals.get((slot, found.dtype), (0, 0))
            for region in found.xor_sig:
                word ^= region
            totals[slot, found.dtype] = (word, size + found.logical_nbytes)
    return totals


def _subject(site: Callsite) -> str:
    return f"{site.file}:{site.line} `{site.text}`"
