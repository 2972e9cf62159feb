"""Processes and control flow that trip tracers: each program does the same with and without one."""

from __future__ import annotations

from pathlib import Path

import pytest
from opguard_traced import run_traced

from opguard_e2e import make_checkout

FORMS = {"control": 1, "processes": 1, "distributed": 2}
"""Programs below ``forms``, by their number of ranks. Each prints what it computed."""


@pytest.mark.requirement("B9")
@pytest.mark.parametrize("form", FORMS)
def test_form_does_the_same_under_every_action_and_does_not_differ_from_itself(
    form: str, tmp_path: Path
) -> None:
    checkout = make_checkout(Path(__file__).parent / "forms" / form, tmp_path / "checkout")
    run_traced(checkout, tmp_path, ranks=FORMS[form]).assert_the_same()
