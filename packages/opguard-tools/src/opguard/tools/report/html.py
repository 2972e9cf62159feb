"""``report.html``: one self-contained page, readable without network or scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2

from opguard.tools._version import __version__
from opguard.tools.compare.records import Side
from opguard.tools.compare.results import Comparison
from opguard.tools.report.endings import ending_entries, ending_heading
from opguard.tools.report.excerpts import (
    DiffLine,
    ExcerptLine,
    excerpt,
    excerpt_without_call,
    source_diff,
)
from opguard.tools.report.groups import describe_repeats, other_unpaired
from opguard.tools.report.heatmap import SEVERITY, HeatMap, heat_map
from opguard.tools.report.strips import RegionCell, StepBar, region_cells, step_bars
from opguard.tools.report.wording import (
    ALL_NOT_REPEATABLE,
    CIRCUMSTANCES_BEFORE,
    CIRCUMSTANCES_LATER,
    CIRCUMSTANCES_ONLY,
    DEVICE_TIME,
    NOT_REPEATABLE,
    OTHER_UNPAIRED,
    activity_cell,
    activity_of_nobody,
    headline,
    kind_of_circumstance,
    repeat_summary,
)

MAX_CALLSITES = 50
"""Callsites with device activity; the rest are in summary.json."""

MAX_ORIGINS = 100
"""Origins with excerpts; the rest are in summary.json."""


@dataclass(frozen=True, slots=True)
class SlotView:
    """A slot with its region bar."""

    data: Mapping[str, Any]
    regions: list[RegionCell]


@dataclass(frozen=True, slots=True)
class OriginView:
    """An origin with everything the page shows of it.

    Attributes:
        excerpts: Source around the call, per side.
        diff: Source diff around the call.
        again: In which other steps and ranks it is found, or None.
    """

    data: Mapping[str, Any]
    headline: str
    excerpts: Mapping[str, list[ExcerptLine]]
    diff: list[DiffLine]
    slots: list[SlotView]
    again: str | None


@dataclass(frozen=True, slots=True)
class ContextView:
    """What the page says about the runs themselves.

    Attributes:
        heading: Sentence above the circumstances that come before any origin.
        leading: Those circumstances.
        later: The other ones.
        repeats: What further runs of the baseline say, or None without them.
        hidden: What the page says when every origin is set apart, or None.
    """

    heading: str
    leading: list[Mapping[str, Any]]
    later_heading: str
    later: list[Mapping[str, Any]]
    repeats: str | None
    hidden: str | None


@dataclass(frozen=True, slots=True)
class PageView:
    """Everything the template reads besides the document itself."""

    ending: str | None
    endings: list[tuple[str, str]]
    context: ContextView
    first: OriginView | None
    origins: list[OriginView]
    hidden_origins: int
    set_apart: list[OriginView]
    set_apart_heading: str
    unpaired_heading: str
    unpaired: list[Mapping[str, Any]]
    heat: HeatMap
    bars: list[StepBar]
    relations: list[str]
    device_time: str
    shown_activity: int
    version: str


def render_html(comparison: Comparison, document: Mapping[str, Any]) -> str:
    """Render the page.

    Every text that comes from a workload (source, names, values, errors) is escaped by the
    template engine.

    Args:
        comparison: Gives the sources and the step by callsite map.
        document: The ``opguard-diff`` document of the same comparison.
    """
    first = document["first"]
    others = [o for o in document["origins"] if o["repeat_of"] is None and o != first]
    set_apart = [o for o in document["not_repeatable"] if o["repeat_of"] is None]
    sources = {side: _sources(comparison, side) for side in Side}
    page = PageView(
        ending=ending_heading(document),
        endings=list(ending_entries(document)),
        context=_context(document),
        first=_view(sources, first) if first else None,
        origins=[_view(sources, origin) for origin in others[:MAX_ORIGINS]],
        hidden_origins=max(0, len(others) - MAX_ORIGINS),
        set_apart=[_view(sources, origin) for origin in set_apart[:MAX_ORIGINS]],
        set_apart_heading=NOT_REPEATABLE,
        unpaired_heading=OTHER_UNPAIRED,
        unpaired=other_unpaired(document),
        heat=heat_map(comparison),
        bars=step_bars(document["steps"]),
        relations=[relation.value for relation in reversed(SEVERITY)],
        device_time=DEVICE_TIME,
        shown_activity=MAX_CALLSITES,
        version=__version__,
    )
    return _template().render(page=page, document=document)


def _context(document: Mapping[str, Any]) -> ContextView:
    differs = document["origins"] or document["inherited"] or document["not_repeatable"]
    only_set_apart = document["not_repeatable"] and not document["origins"]
    return ContextView(
        heading=CIRCUMSTANCES_BEFORE if differs else CIRCUMSTANCES_ONLY,
        leading=[item for item in document["circumstances"] if item["before_first"]],
        later_heading=CIRCUMSTANCES_LATER,
        later=[item for item in document["circumstances"] if not item["before_first"]],
        repeats=repeat_summary(document["repeatability"]) if document["repeatability"] else None,
        hidden=ALL_NOT_REPEATABLE if only_set_apart else None,
    )


def _sources(comparison: Comparison, side: Side) -> dict[str, bytes]:
    """Source files of one side: of the checkout, and of libraries by their shared names."""
    capture = comparison.capture(side)
    innermost = {
        call.place
        for rank in comparison.ranks
        for call in rank.records[side].calls
        if call.place is not None
    }
    digests = {p.name: p.source for place in innermost for p in place.chain() if p.path}
    libraries = {name: capture.libraries.get(digest) for name, digest in digests.items()}
    return {name: text for name, text in libraries.items() if text is not None} | dict(
        capture.sources
    )


def _view(sources: Mapping[Side, Mapping[str, bytes]], origin: Mapping[str, Any]) -> OriginView:
    return OriginView(
        data=origin,
        headline=_sentence(headline(origin)),
        excerpts={
            side.value: excerpt(sources[side], origin[side.value])
            if origin[side.value] is not None
            else excerpt_without_call(sources[side], sources[other], origin[other.value])
            for side, other in (
                (Side.BASELINE, Side.CANDIDATE),
                (Side.CANDIDATE, Side.BASELINE),
            )
        },
        diff=source_diff(sources[Side.BASELINE], sources[Side.CANDIDATE], origin),
        slots=[SlotView(slot, region_cells(slot)) for slot in origin["slots"]],
        again=describe_repeats(origin),
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("opguard.tools.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kind"] = kind_of_circumstance
    environment.filters["activity"] = activity_cell
    environment.filters["nobody"] = activity_of_nobody
    return environment.get_template("report.html.j2")
