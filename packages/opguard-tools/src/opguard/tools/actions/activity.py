"""Device activity of a trace: sums for its result, and a file with every callsite."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from opguard.tools.activity import Attribution, Figures, callsite_figures, read_activity
from opguard.tools.activity.figures import total
from opguard.tools.durable import write_durable
from opguard.tools.formats import ACTIVITY_REPORT_NAME, ACTIVITY_SCHEMA
from opguard.tools.launch.receipts import Receipt
from opguard.tools.protocol.models import ActivityFigures, RankActivity
from opguard.tools.source.plan import Site


def activity_fields(
    output: Path, capture: Path, receipts: Iterable[Receipt], sites: Iterable[Site]
) -> dict[str, Any]:
    """Attribute what the ranks collected, and write ``device-activity.json``.

    Args:
        output: Output directory of the trace.
        capture: Directory of the capture.
        receipts: Of the ranks.
        sites: The plan's callsites.

    Returns:
        The fields ``activity`` and ``activity_report`` of the result.

    Source:
        Protocol requirement B11.
    """
    found = {
        receipt.rank: attribution
        for receipt in receipts
        if (attribution := read_activity(capture, receipt.rank, receipt.device_activity))
    }
    if not found:
        return {"activity": [], "activity_report": None}
    places = {site.id: site for site in sites}
    ranks = [
        {"rank": rank, "callsites": _callsites(attribution, places)} | _apart(attribution)
        for rank, attribution in found.items()
    ]
    report = output / ACTIVITY_REPORT_NAME
    document = {"schema": ACTIVITY_SCHEMA, "ranks": ranks}
    write_durable(report, (json.dumps(document, indent=1) + "\n").encode())
    return {
        "activity": [_rank(rank, attribution) for rank, attribution in found.items()],
        "activity_report": str(report),
    }


def _rank(rank: int, attribution: Attribution) -> RankActivity:
    figures = callsite_figures(attribution).values()
    return RankActivity(
        rank=rank,
        direct=_stated(total(site.direct for site in figures)),
        backward=_stated(total(site.backward for site in figures)),
        **_apart(attribution),
    )


def _stated(figures: Figures) -> ActivityFigures:
    return ActivityFigures(**asdict(figures))


def _apart(attribution: Attribution) -> dict[str, Any]:
    return {
        "others": {
            reason: asdict(Figures.of(kinds))
            for reason, kinds in sorted(attribution.others.items())
            if kinds
        },
        "warnings": [
            text if count == 1 else f"{text} ({count} times)"
            for text, count in sorted(attribution.warnings.items())
        ],
    }


def _callsites(attribution: Attribution, places: dict[int, Site]) -> list[dict[str, Any]]:
    listed = []
    for number, figures in callsite_figures(attribution).items():
        site = places.get(number)
        place = {"file": "", "line": 0, "qualname": "", "text": ""}
        if site is not None:
            place = {name: getattr(site, name) for name in place}
        listed.append({"site": number, **place, **asdict(figures)})
    return listed
