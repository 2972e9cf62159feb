from __future__ import annotations

from typing import Any

import pytest

from opguard.tools.compare import Comparison
from opguard.tools.report import document, render_text
from opguard.tools.report.groups import describe_repeats, note_repeats


def origin(step: int, *, line: int = 1, rank: int = 0, order: int = 0) -> dict[str, Any]:
    place = {"file": "train.py", "line": line}
    return {
        "kind": "outputs_differ", "rank": rank, "step": step, "order": order, "baseline": place,
        "candidate": None,
    }  # fmt: skip


def marked(*origins: dict[str, Any]) -> list[tuple[Any, Any]]:
    note_repeats(origins)
    return [(entry["repeats"], entry["repeat_of"]) for entry in origins]


def test_origins_of_one_place_name_the_earliest() -> None:
    assert marked(origin(0), origin(0, line=2), origin(1), origin(2), origin(5)) == [
        ({"count": 3, "ranks": [0], "steps": [[1, 2], [5, 5]]}, None),
        (None, None),
        (None, 0),
        (None, 0),
        (None, 0),
    ]


def test_earliest_is_by_step_over_ranks_whatever_the_order_of_the_list() -> None:
    assert marked(origin(3, rank=0), origin(1, rank=1)) == [
        (None, 1),
        ({"count": 1, "ranks": [0], "steps": [[3, 3]]}, None),
    ]


def test_other_kind_or_other_side_is_another_place() -> None:
    other = origin(1) | {"kind": "unpaired"}
    turned = origin(2) | {"baseline": None, "candidate": origin(2)["baseline"]}

    assert marked(origin(0), other, turned) == [(None, None)] * 3


@pytest.mark.parametrize(
    ("origins", "text"),
    [
        ([origin(0)], None),
        ([origin(0), origin(1)], "also in step 1"),
        ([origin(0), origin(1), origin(2), origin(7)], "also in steps 1-2, 7"),
        ([origin(0), origin(0, order=4)], "also 1 more time in this step"),
        ([origin(0), origin(0, rank=1)], "also 1 more time in this step (rank 1)"),
        ([origin(0), origin(1), origin(1, rank=1)], "also in step 1 (ranks 0, 1)"),
    ],
)
def test_repeats_are_put_in_words(origins: list[dict[str, Any]], text: str | None) -> None:
    note_repeats(origins)

    assert describe_repeats(origins[0]) == text


def test_text_prints_one_entry_per_place(differing: Comparison) -> None:
    found = document(differing)
    first = found["first"]
    found["origins"] = [first, *(first | {"step": step, "order": step} for step in (2, 3, 4))]
    note_repeats(found["origins"])

    text = render_text(found)

    assert text.count("why:") == 1
    assert "    also in steps 2-4\n" in text
