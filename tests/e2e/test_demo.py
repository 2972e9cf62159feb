"""The example of the README, from two checkouts to the line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from opguard_e2e import EXAMPLE, Checkout, make_checkout, run_diff, run_tool

STEPS = "4"


class Diff(NamedTuple):
    """One run of the command on two checkouts."""

    baseline: Checkout
    candidate: Checkout
    output: Path
    status: int
    document: dict[str, Any]


def diff_of(folder: Path, baseline: str, candidate: str) -> Diff:
    """Run the command on scratch checkouts of two of the example's programs."""
    left = make_checkout(EXAMPLE / baseline, folder / "baseline")
    right = make_checkout(EXAMPLE / candidate, folder / "candidate")
    output = folder / "out"
    status, document = run_diff(left.path, right.path, output, "--steps", STEPS)
    return Diff(left, right, output, status, document)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Diff:
    """The baseline against the candidate."""
    return diff_of(tmp_path_factory.mktemp("found"), "baseline", "candidate")


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Diff:
    """The baseline against itself."""
    return diff_of(tmp_path_factory.mktemp("control"), "baseline", "baseline")


def test_example_differs_at_the_expected_statement(found: Diff) -> None:
    expected = json.loads((EXAMPLE / "expected.json").read_text())["statement"]
    first = found.document["first"]
    assert found.status == 1
    assert {
        side: {"file": first[side]["file"], "line": first[side]["line"]} for side in expected
    } == expected


def test_first_origin_is_the_first_in_execution_order(found: Diff) -> None:
    assert found.document["first"] == found.document["origins"][0]
    assert found.document["first"]["step"] == 0
    assert found.document["first"]["phase"] == "forward"


def test_document_says_what_it_is_and_gives_no_verdict(found: Diff) -> None:
    assert found.document["schema"] == {"name": "opguard-diff", "version": 1}
    assert found.document["verdict"] == "not_evaluated"
    assert found.document["ranks"] == [0]


def test_every_report_named_in_the_document_exists(found: Diff) -> None:
    named = [Path(text) for text in strings_in(found.document["reports"])]
    files = [path for path in named if path.is_absolute()]
    assert {path.name for path in files} >= {
        "rank-0.perfetto-trace",
        "report.html",
        "summary.json",
    }
    assert [path for path in files if not path.is_file()] == []


def strings_in(value: Any) -> list[str]:
    """Every string at any depth of a JSON value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in strings_in(item)]
    if isinstance(value, list):
        return [text for item in value for text in strings_in(item)]
    return []


def test_baseline_against_itself_has_no_origin(control: Diff) -> None:
    assert control.status == 0
    assert control.document["origins"] == []
    assert control.document["first"] is None
    assert control.document["unpaired"] == []


@pytest.mark.requirement("D4", "D5", "D8")
def test_checkouts_are_left_as_they_were(found: Diff, control: Diff) -> None:
    for run in (found, control):
        run.baseline.assert_untouched()
        run.candidate.assert_untouched()


def test_missing_checkout_is_a_failed_operation(tmp_path: Path) -> None:
    completed = run_tool(
        *("diff", "--baseline", str(tmp_path / "absent"), "--candidate", str(tmp_path)),
        *("--output", str(tmp_path / "out")),
    )
    assert completed.returncode in (2, 3)
    assert "absent" in completed.stderr
