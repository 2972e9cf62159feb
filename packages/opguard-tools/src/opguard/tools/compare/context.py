"""Gathers the circumstances of a comparison, and says which of them come before any origin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from opguard.tools.compare.circumstances import Circumstance, merge_ranks
from opguard.tools.compare.configuration import configuration_circumstances
from opguard.tools.compare.data_items import differing_data
from opguard.tools.compare.origin import Origin, OriginKind
from opguard.tools.compare.random_streams import differing_streams
from opguard.tools.compare.records import Call, Side
from opguard.tools.compare.results import Comparison, RankComparison
from opguard.tools.compare.state import describe_place


def with_circumstances(comparison: Comparison) -> Comparison:
    """The comparison with everything that differs around the program.

    Requests and receipts hold from the start; the random stream and the data are placed where
    the records first show them. On its own none of these is an origin.
    """
    ranks = [rank.rank for rank in comparison.ranks]
    started = configuration_circumstances(comparison.baseline, comparison.candidate, ranks)
    recorded = merge_ranks(
        (rank.rank, replace(item, before_first=_is_before_first(comparison, rank, position, item)))
        for rank in comparison.ranks
        for position, item in _recorded(comparison, rank)
    )
    return replace(comparison, circumstances=[*started, *recorded])


def _recorded(comparison: Comparison, rank: RankComparison) -> Iterator[tuple[float, Circumstance]]:
    pairs = [verdict.pair for verdict in rank.pairs]
    sites = {side: comparison.sites(side) for side in Side}

    def where(side: Side, call: Call) -> str:
        return describe_place(call, sites[side])

    yield from differing_streams(pairs, rank.records, rank.fingerprints, where)
    yield from differing_data(
        pairs, rank.events, rank.unpaired, rank.records, sites, rank.fingerprints
    )


def _is_before_first(
    comparison: Comparison, rank: RankComparison, position: float, item: Circumstance
) -> bool:
    """Whether no origin comes earlier: on the rank's own clock, between ranks by step."""
    if rank.origins:
        return all(
            position <= origin.position or _still_runs(origin, position) for origin in rank.origins
        )
    return comparison.first is None or (item.step or 0) <= comparison.first[1].step


def _still_runs(origin: Origin, position: float) -> bool:
    """Whether an origin is only an argument, given to a call in whose extent the position lies.

    ``main(seed)`` differs before everything else and has computed nothing yet.
    """
    call = origin.baseline
    return (
        origin.kind is OriginKind.UNEXPLAINED_INPUT
        and call is not None
        and call.begin < position < call.end
    )
