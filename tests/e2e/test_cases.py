"""Known divergence bugs as pairs of programs: the first origin names the faulty statement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opguard_e2e import make_checkout, run_diff

CASES = (
    "02_rope_phase_bf16",
    "03_merge_heads_no_permute",
    "05_bf16_mask_plane_sum",
    "20_padding_row_reinit",
)
SLACK_LINES = 1


def names_accepted_site(origin: dict[str, Any], accepted: list[dict[str, Any]]) -> bool:
    """Whether an origin's statement, on either side, holds one of the accepted lines."""
    return any(
        site["file"] == statement["file"]
        and statement["line"] - SLACK_LINES <= site["line"]
        and site["line"] <= (statement["end_line"] or statement["line"]) + SLACK_LINES
        for site in accepted
        if (statement := origin[site["side"]]) is not None
    )


@pytest.mark.parametrize("case", CASES)
def test_first_origin_names_the_faulty_statement(
    case: str, shared_root: Path, tmp_path: Path
) -> None:
    folder = shared_root / "cases" / "pairs" / case
    baseline = make_checkout(folder / "baseline", tmp_path / "baseline")
    candidate = make_checkout(folder / "candidate", tmp_path / "candidate")
    status, document = run_diff(
        baseline.path, candidate.path, tmp_path / "out", "--seed", "0", "--steps", "3"
    )
    accepted = json.loads((folder / "case.json").read_text())["accept"]
    assert status == 1
    assert names_accepted_site(document["first"], accepted), document["first"]
    baseline.assert_untouched()
    candidate.assert_untouched()


@pytest.mark.parametrize("case", CASES)
def test_program_does_not_differ_from_itself(case: str, shared_root: Path, tmp_path: Path) -> None:
    folder = shared_root / "cases" / "pairs" / case
    baseline = make_checkout(folder / "candidate", tmp_path / "baseline")
    candidate = make_checkout(folder / "candidate", tmp_path / "candidate")
    status, document = run_diff(
        baseline.path, candidate.path, tmp_path / "out", "--seed", "0", "--steps", "2"
    )
    assert status == 0
    assert document["origins"] == []
    assert document["first"] is None
