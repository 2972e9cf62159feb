"""``compare`` of captures whose launcher was the fake one."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from action_requests import compared, prepare_request, prepared, trace_request, traced

from opguard.tools.actions import prepare, trace
from opguard.tools.actions.comparing import CaptureSource, compare_sources
from opguard.tools.compare import CaptureReadError
from opguard.tools.digests import sha256
from opguard.tools.launch.errors import LauncherFailedError
from opguard.tools.protocol.errors import ArtifactMismatchError, OpGuardError
from opguard.tools.protocol.models import DiscoverResult, TraceResult


@pytest.mark.requirement("E1")
@pytest.mark.requirement("E2")
def test_compare_reports_relations_per_rank_and_gives_no_verdict(scratch: Any) -> None:
    baseline, candidate = traced(scratch, b"same"), traced(scratch, b"diff")

    result = compared(scratch, baseline, candidate, [0])

    output = Path(result.output)
    report = result.reports[0]
    assert (report.rank, Path(report.path)) == (0, output / "rank-0.perfetto-trace")
    assert sha256(Path(report.path).read_bytes()) == report.sha256
    assert report.relations.model_dump() == {
        "equal": 0,
        "different": 2,
        "incompatible": 0,
        "unpaired": 0,
        "incomplete": 0,
    }
    assert (result.report_html, result.summary_json) == (
        str(output / "report.html"),
        str(output / "summary.json"),
    )
    assert (result.ranks, result.coverage, result.verdict) == (
        [0],
        "observed_callsites_only",
        "not_evaluated",
    )
    assert json.loads(Path(result.summary_json).read_text())["first"]["step"] == 0


@pytest.mark.requirement("E1")
def test_rank_that_a_side_does_not_have_is_refused(scratch: Any) -> None:
    result = traced(scratch)

    with pytest.raises(CaptureReadError) as caught:
        compared(scratch, result, result, [0, 1])

    assert caught.value.details == {"rank": 1}


@pytest.mark.requirement("D2")
def test_compare_reads_no_checkout(scratch: Any) -> None:
    result = traced(scratch)
    shutil.rmtree(scratch.checkout)

    assert compared(scratch, result, result, [0]).reports[0].relations.different == 0


def test_compare_of_a_removed_trace_is_refused(scratch: Any) -> None:
    result = traced(scratch)
    shutil.rmtree(result.output)

    with pytest.raises(ArtifactMismatchError):
        compared(scratch, result, result, [0])


@pytest.mark.requirement("B13")
@pytest.mark.parametrize("content", ["{}", '{"capture_id": "x", "request": []}'])
def test_folder_whose_request_is_of_another_kind_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "worker-request.json").write_text(content)

    with pytest.raises(ArtifactMismatchError):
        CaptureSource.open(tmp_path, partial=True)


@pytest.mark.requirement("B13")
@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ({"exit": 1, "receipt": False}, "the rank left no receipt"),
        ({"kill": True, "receipt": False}, "the rank was ended by SIGKILL"),
        ({"damage_receipt": True}, "the rank left no receipt"),
        (
            {
                "exit": 1,
                "receipt_fields": {
                    "exit_status": 1,
                    "exit_kind": "exception",
                    "exception": {"type": "E", "message": "m", "file": "f.py", "line": 9},
                },
            },
            "the rank raised E: m (f.py:9)",
        ),
        (
            {"exit": 3, "receipt_fields": {"exit_status": 3, "exit_kind": "os_exit"}},
            "the rank left through os._exit with status 3",
        ),
        ({"flip": True}, "batch"),
    ],
    ids=str,
)
def test_failed_trace_can_be_compared_partially_and_says_why_it_ended(
    scratch: Any, behaviour: dict[str, Any], reason: str
) -> None:
    complete = traced(scratch)
    request = trace_request(scratch, prepared(scratch), behaviour)
    with pytest.raises(OpGuardError):
        trace.run(request)

    made = compare_sources(
        CaptureSource.of_result(complete),
        CaptureSource.open(Path(request.output), partial=True),
        output=scratch.output(),
    )

    document = json.loads(made.reports.summary.read_text())
    assert [(entry["rank"], entry["side"]) for entry in document["incomplete"]] == [
        (0, "candidate")
    ]
    assert reason in document["incomplete"][0]["reason"]
    assert document["first"] is None


@pytest.mark.requirement("B13")
@pytest.mark.parametrize(
    "behaviour",
    [
        {"exit": 3, "receipt_fields": {"exit_status": 3, "exit_kind": "os_exit"}},
        {"kill": True, "receipt": False},
        {"exit": 1},
    ],
    ids=["os._exit", "killed", "launcher"],
)
def test_what_a_failed_discovery_observed_can_be_prepared(
    scratch: Any, behaviour: dict[str, Any]
) -> None:
    with pytest.raises(OpGuardError) as caught:
        scratch.discover(behaviour)
    left = json.loads((scratch.folder / "out-1" / "incomplete.json").read_text())

    plan = prepare.run(prepare_request(scratch, DiscoverResult.model_validate(left)))

    assert plan.sites == 1
    assert left["ending"]["error_type"] == caught.value.error_type
    assert left["ranks"] == [0]


@pytest.mark.requirement("B6")
@pytest.mark.parametrize(
    "behaviour",
    [{"exit": 1, "batches": 0}, {"flip": True}, {"duplicate": True, "exit": 1}, {}],
    ids=["nothing recorded", "damaged", "started twice", "success"],
)
def test_only_a_run_that_ended_by_itself_leaves_an_incomplete_result(
    scratch: Any, behaviour: dict[str, Any]
) -> None:
    with contextlib.suppress(OpGuardError):
        scratch.discover(behaviour)

    assert not (scratch.folder / "out-1" / "incomplete.json").exists()


@pytest.mark.requirement("B13", "E1")
def test_compare_refuses_a_trace_that_did_not_succeed(scratch: Any) -> None:
    complete = traced(scratch)
    behaviour = {"exit": 3, "receipt_fields": {"exit_status": 3, "exit_kind": "os_exit"}}
    request = trace_request(scratch, prepared(scratch), behaviour)
    with pytest.raises(OpGuardError):
        trace.run(request)
    left = json.loads(Path(request.output, "incomplete.json").read_text())

    with pytest.raises(ArtifactMismatchError) as caught:
        compared(scratch, complete, TraceResult.model_validate(left), [0])

    assert caught.value.details == {"field": "candidate"}
    assert "--partial" in caught.value.message


@pytest.mark.requirement("B13")
def test_captures_without_a_rank_in_common_are_refused(scratch: Any) -> None:
    complete = traced(scratch)
    request = trace_request(scratch, prepared(scratch), {"ranks": [], "exit": 1})
    with pytest.raises(LauncherFailedError):
        trace.run(request)

    with pytest.raises(CaptureReadError):
        compare_sources(
            CaptureSource.of_result(complete),
            CaptureSource.open(Path(request.output), partial=True),
            output=scratch.output(),
        )
