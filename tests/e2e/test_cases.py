"""Known divergence bugs as pairs of programs: the first origin names the faulty statement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from opguard_cases import names_accepted_site

from opguard_e2e import Checkout, make_checkout, run_diff

STEPS = {
    "02_rope_phase_bf16": 3,
    "03_merge_heads_no_permute": 3,
    "05_bf16_mask_plane_sum": 3,
    "20_padding_row_reinit": 3,
    "26_sampler_epoch_not_set": 6,  # two ranks; the second epoch begins at step 4
}


def diff_of_case(
    case: dict[str, Any], left: Checkout, right: Checkout, steps: int
) -> tuple[int, dict[str, Any]]:
    """Exit status and document of the command on two checkouts of a case."""
    output = left.path.parent / "out"
    arguments = ("--seed", "0", "--steps", str(steps))
    return run_diff(left.path, right.path, output, *arguments, ranks=case["ranks"])


@pytest.mark.parametrize("name", STEPS)
def test_first_origin_names_the_faulty_statement(
    name: str, shared_root: Path, tmp_path: Path
) -> None:
    folder = shared_root / "cases" / "pairs" / name
    case = json.loads((folder / "case.json").read_text())
    baseline = make_checkout(folder / "baseline", tmp_path / "baseline")
    candidate = make_checkout(folder / "candidate", tmp_path / "candidate")
    status, document = diff_of_case(case, baseline, candidate, STEPS[name])
    assert status == 1
    assert names_accepted_site(document["first"], case["accept"]), document["first"]
    assert document["ranks"] == list(range(case["ranks"]))
    baseline.assert_untouched()
    candidate.assert_untouched()


@pytest.mark.parametrize("name", STEPS)
def test_program_does_not_differ_from_itself(name: str, shared_root: Path, tmp_path: Path) -> None:
    folder = shared_root / "cases" / "pairs" / name
    case = json.loads((folder / "case.json").read_text())
    baseline = make_checkout(folder / "candidate", tmp_path / "baseline")
    candidate = make_checkout(folder / "candidate", tmp_path / "candidate")
    status, document = diff_of_case(case, baseline, candidate, steps=2)
    assert (status, document["origins"], document["first"]) == (0, [], None)
