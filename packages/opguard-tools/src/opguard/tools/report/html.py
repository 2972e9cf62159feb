"""``report.html``: one self-contained page, readable without network or scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2

from opguard.tools._version import __version__
from opguard.tools.compare.engine import Comparison
from opguard.tools.compare.records import Side
from opguard.tools.report.excerpts import (
    DiffLine,
    ExcerptLine,
    excerpt,
    excerpt_without_call,
    source_diff,
)
from opguard.tools.report.heatmap import SEVERITY, HeatMap, heat_map
from opguard.tools.report.strips import RegionCell, StepBar, region_cells, step_bars
from opguard.tools.report.wording import HEADLINES

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
    """

    data: Mapping[str, Any]
    headline: str
    excerpts: Mapping[str, list[ExcerptLine]]
    diff: list[DiffLine]
    slots: list[SlotView]


@dataclass(frozen=True, slots=True)
class PageView:
    """Everything the template reads besides the document itself."""

    first: OriginView | None
    origins: list[OriginView]
    hidden_origins: int
    heat: HeatMap
    bars: list[StepBar]
    relations: list[str]
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
    others = [origin for origin in document["origins"] if origin != first]
    page = PageView(
        first=_view(comparison, first) if first else None,
        origins=[_view(comparison, origin) for origin in others[:MAX_ORIGINS]],
        hidden_origins=max(0, len(others) - MAX_ORIGINS),
        heat=heat_map(comparison),
        bars=step_bars(document["steps"]),
        relations=[relation.value for relation in reversed(SEVERITY)],
        version=__version__,
    )
    return _template().render(page=page, document=document)


def _view(comparison: Comparison, origin: Mapping[str, Any]) -> OriginView:
    sources = {side: comparison.capture(side).sources for side in Side}
    return OriginView(
        data=origin,
        headline=_sentence(HEADLINES.get(origin["kind"], origin["kind"])),
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
    return environment.get_template("report.html.j2")
