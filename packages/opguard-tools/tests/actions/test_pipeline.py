"""``prepare``, ``trace`` and ``compare`` on a checkout whose launcher is the fake one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from opguard.tools.actions import compare, prepare, trace
from opguard.tools.actions.comparing import CaptureSource, compare_sources
from opguard.tools.compare import CaptureReadError
from opguard.tools.digests import sha256
from opguard.tools.launch.errors import BatchCorruptError, LauncherFailedError, RankEndedError
from opguard.tools.protocol.errors import (
    ArtifactMismatchError,
    OpGuardError,
    OutputExistsError,
    PathConflictError,
    WorkloadNotFoundError,
)
from opguard.tools.protocol.models import (
    CompareRequest,
    CompareResult,
    DiscoverResult,
    PrepareRequest,
    PrepareResult,
    TraceRequest,
    TraceResult,
)
from opguard.tools.source import (
    ConfigurationError,
    InvalidPlanError,
    NothingToInstrumentError,
)
from opguard.tools.transaction import CheckoutLock, CheckoutLockedError, SourceMismatchError


def prepare_request(scratch: Any, discovery: DiscoverResult, **changes: Any) -> PrepareRequest:
    return PrepareRequest.model_validate(
        {
            "protocol_version": 1,
            "output": str(scratch.output()),
            "workload": scratch.workload(),
            "discovery": json.loads(discovery.model_dump_json()),
            **changes,
        }
    )


def prepared(scratch: Any) -> PrepareResult:
    return prepare.run(prepare_request(scratch, scratch.discover()))


def trace_request(
    scratch: Any, plan: PrepareResult, behaviour: dict[str, Any] | None = None
) -> TraceRequest:
    return TraceRequest.model_validate(
        {**scratch.launch(behaviour), "plan": json.loads(plan.model_dump_json())}
    )


def traced(scratch: Any, value: bytes = b"same") -> TraceResult:
    (scratch.checkout / "value.txt").write_bytes(value)
    return trace.run(trace_request(scratch, prepared(scratch)))


def compared(
    scratch: Any, baseline: TraceResult, candidate: TraceResult, ranks: list[int]
) -> CompareResult:
    request = {
        "protocol_version": 1,
        "output": str(scratch.output()),
        "baseline": json.loads(baseline.model_dump_json()),
        "candidate": json.loads(candidate.model_dump_json()),
        "ranks": ranks,
    }
    return compare.run(CompareRequest.model_validate(request))


@pytest.mark.requirement("C1")
@pytest.mark.requirement("C2")
def test_prepare_writes_plan_and_configuration_with_their_digests(scratch: Any) -> None:
    result = prepared(scratch)

    plan = Path(result.plan).read_bytes()
    configuration = Path(result.configuration).read_bytes()
    source = (scratch.checkout / "train.py").read_bytes()
    assert sha256(plan) == result.plan_sha256
    assert sha256(configuration) == result.configuration_sha256
    assert [file.model_dump() for file in result.files] == [
        {"path": "train.py", "size": len(source), "sha256": sha256(source), "sites": 1}
    ]
    assert (result.sites, result.observed_sites, result.excluded) == (1, 1, [])
    assert result.coverage == "observed_callsites_only"
    assert json.loads(plan)["coverage"] == "observed_callsites_only"


@pytest.mark.requirement("C5")
def test_preparing_twice_gives_the_same_bytes(scratch: Any) -> None:
    discovery = scratch.discover()

    first = prepare.run(prepare_request(scratch, discovery))
    second = prepare.run(prepare_request(scratch, discovery))

    for name in ("plan", "configuration"):
        contents = [Path(getattr(result, name)).read_bytes() for result in (first, second)]
        assert contents[0] == contents[1]
        assert str(scratch.folder).encode() not in contents[0]


@pytest.mark.requirement("C4")
def test_prepare_refuses_a_plan_that_would_instrument_nothing(scratch: Any) -> None:
    discovery = scratch.discover({"spans": [{"file": "/usr/lib/elsewhere.py"}]})

    with pytest.raises(NothingToInstrumentError):
        prepare.run(prepare_request(scratch, discovery))


def test_counterpart_puts_its_callsites_into_the_plan(scratch: Any) -> None:
    (scratch.checkout / "train.py").write_text("x = 1 + 2\ny = 3 * 4\n")
    discovery = scratch.discover()
    other = scratch.folder / "other"
    shutil.copytree(scratch.checkout, other)
    there = scratch.discover({"spans": [{"span": (2, 2, 4, 9)}]}, cwd=str(other))

    result = prepare.run(
        prepare_request(
            scratch,
            discovery,
            counterpart={
                "workload": scratch.workload(cwd=str(other)),
                "discovery": json.loads(there.model_dump_json()),
            },
        )
    )

    assert (result.sites, result.observed_sites) == (2, 1)


def test_counterpart_may_be_the_same_checkout(scratch: Any) -> None:
    discovery = scratch.discover()
    document = json.loads(discovery.model_dump_json())

    result = prepare.run(
        prepare_request(
            scratch,
            discovery,
            counterpart={"workload": scratch.workload(), "discovery": document},
        )
    )

    assert result.sites == 1


def test_discovery_of_another_checkout_is_refused(scratch: Any) -> None:
    discovery = scratch.discover()
    other = scratch.folder / "other"
    shutil.copytree(scratch.checkout, other)

    with pytest.raises(ArtifactMismatchError) as caught:
        prepare.run(prepare_request(scratch, discovery, workload=scratch.workload(cwd=str(other))))

    assert caught.value.details == {"field": "discovery"}


def test_missing_counterpart_is_refused(scratch: Any) -> None:
    discovery = scratch.discover()
    counterpart = {
        "workload": scratch.workload(cwd=str(scratch.folder / "missing")),
        "discovery": json.loads(discovery.model_dump_json()),
    }

    with pytest.raises(WorkloadNotFoundError):
        prepare.run(prepare_request(scratch, discovery, counterpart=counterpart))


@pytest.mark.requirement("C1")
def test_prepare_of_a_damaged_discovery_is_refused(scratch: Any) -> None:
    discovery = scratch.discover()
    batch = Path(discovery.capture, "rank-0", "batch-00000001.xsb")
    data = bytearray(batch.read_bytes())
    data[-1] ^= 1
    batch.write_bytes(data)

    with pytest.raises(BatchCorruptError):
        prepare.run(prepare_request(scratch, discovery))


def test_prepare_of_a_removed_discovery_is_refused(scratch: Any) -> None:
    discovery = scratch.discover()
    shutil.rmtree(discovery.capture)

    with pytest.raises(BatchCorruptError):
        prepare.run(prepare_request(scratch, discovery))


@pytest.mark.requirement("D2")
def test_prepare_and_trace_refuse_a_locked_checkout(scratch: Any) -> None:
    plan = prepared(scratch)
    discovery = scratch.discover()

    with CheckoutLock(scratch.checkout, "other"):
        with pytest.raises(CheckoutLockedError):
            prepare.run(prepare_request(scratch, discovery))
        with pytest.raises(CheckoutLockedError):
            trace.run(trace_request(scratch, plan))


def test_prepare_refuses_an_output_in_the_checkout(scratch: Any) -> None:
    discovery = scratch.discover()

    with pytest.raises(PathConflictError):
        prepare.run(prepare_request(scratch, discovery, output=str(scratch.checkout / "prepared")))


@pytest.mark.requirement("D3")
@pytest.mark.requirement("D4")
@pytest.mark.requirement("D5")
def test_trace_keeps_plan_sources_and_result_and_restores_the_checkout(scratch: Any) -> None:
    plan = prepared(scratch)
    source = scratch.checkout / "train.py"
    before = (source.read_bytes(), source.stat().st_mtime_ns)

    result = trace.run(trace_request(scratch, plan))

    output = Path(result.output)
    assert (source.read_bytes(), source.stat().st_mtime_ns) == before
    assert (output / "sources" / "train.py").read_bytes() == before[0]
    assert (output / "plan.json").read_bytes() == Path(plan.plan).read_bytes()
    assert json.loads((output / "result.json").read_text()) == json.loads(result.model_dump_json())
    assert result.instrumented_files == ["train.py"]
    assert result.plan_sha256 == plan.plan_sha256
    assert output.with_name(output.name + "-instrument").is_dir()
    assert not (scratch.checkout / ".opguard" / "harness-active.json").exists()


@pytest.mark.requirement("D4")
def test_workload_of_a_trace_sees_instrumented_source_and_bytecode_elsewhere(
    scratch: Any,
) -> None:
    plan = prepared(scratch)
    script = scratch.folder / "look.sh"
    script.write_text(
        "#!/bin/sh\ncat train.py\necho $PYTHONPYCACHEPREFIX\n"
        + " ".join([*scratch.workload()["launcher"], '"$@"\n'])
    )
    script.chmod(0o755)
    document = scratch.launch(launcher=[str(script)], env={"PYTHONPYCACHEPREFIX": "/x"})
    document["plan"] = json.loads(plan.model_dump_json())

    result = trace.run(TraceRequest.model_validate(document))

    log = Path(result.log).read_text()
    assert "__opguard_site__" in log
    assert str(scratch.folder / "local") in log
    assert "site" not in (scratch.checkout / "train.py").read_text()


@pytest.mark.requirement("D1")
@pytest.mark.parametrize("change", ["edit", "remove"])
def test_trace_of_changed_sources_lists_them_and_makes_nothing(scratch: Any, change: str) -> None:
    (scratch.checkout / "model.py").write_bytes((scratch.checkout / "train.py").read_bytes())
    discovery = scratch.discover({"spans": [{"file": "model.py"}]})
    plan = prepare.run(prepare_request(scratch, discovery))
    source = scratch.checkout / "model.py"
    if change == "edit":
        source.write_text("x = 1 + 3\n")
    else:
        source.unlink()
    request = trace_request(scratch, plan)

    with pytest.raises(SourceMismatchError) as caught:
        trace.run(request)

    assert caught.value.details["files"] == ["model.py"]
    assert not Path(request.output).exists()


@pytest.mark.requirement("D1")
@pytest.mark.parametrize("name", ["plan", "configuration"])
def test_trace_refuses_a_changed_or_missing_artifact(scratch: Any, name: str) -> None:
    plan = prepared(scratch)
    path = Path(getattr(plan, name))
    original = path.read_bytes()
    path.write_bytes(original + b"\n")

    with pytest.raises(ArtifactMismatchError):
        trace.run(trace_request(scratch, plan))
    path.unlink()
    with pytest.raises(ArtifactMismatchError):
        trace.run(trace_request(scratch, plan))


@pytest.mark.requirement("D1")
def test_trace_refuses_a_configuration_of_another_plan(scratch: Any) -> None:
    plan = prepared(scratch)
    other = Path(plan.configuration).with_name("other.yaml")
    other.write_bytes(Path(plan.configuration).read_bytes() + b"# other\n")
    changed = plan.model_copy(
        update={"configuration": str(other), "configuration_sha256": sha256(other.read_bytes())}
    )

    with pytest.raises(ArtifactMismatchError):
        trace.run(trace_request(scratch, changed))


def test_trace_refuses_a_file_that_is_no_plan(scratch: Any) -> None:
    plan = prepared(scratch)
    Path(plan.plan).write_text("{}")
    changed = plan.model_copy(update={"plan_sha256": sha256(b"{}")})

    with pytest.raises(InvalidPlanError):
        trace.run(trace_request(scratch, changed))


@pytest.mark.requirement("C6")
@pytest.mark.parametrize("section", ["entry", "meta_vars"])
def test_trace_refuses_unsupported_sections_by_name(scratch: Any, section: str) -> None:
    plan = prepared(scratch)
    with Path(plan.configuration).open("a") as configuration:
        configuration.write(f"{section}: {{}}\n")

    with pytest.raises(ConfigurationError) as caught:
        trace.run(trace_request(scratch, plan))

    assert caught.value.details["section"] == section


@pytest.mark.requirement("D5")
@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        ({"exit": 1}, LauncherFailedError),
        ({"kill": True, "receipt": False}, RankEndedError),
        ({"flip": True}, BatchCorruptError),
    ],
    ids=str,
)
def test_failed_trace_restores_the_checkout_and_keeps_the_capture(
    scratch: Any, behaviour: dict[str, Any], expected: type[Exception]
) -> None:
    plan = prepared(scratch)
    before = (scratch.checkout / "train.py").read_bytes()
    request = trace_request(scratch, plan, behaviour)

    with pytest.raises(expected):
        trace.run(request)

    output = Path(request.output)
    assert (scratch.checkout / "train.py").read_bytes() == before
    assert len(list((output / "capture" / "rank-0").glob("*.xsb"))) == 2
    assert (output / "plan.json").is_file()
    assert (output / "sources" / "train.py").read_bytes() == before
    assert not (output / "result.json").exists()


def test_trace_leaves_nothing_in_the_staging_directory(scratch: Any) -> None:
    traced(scratch)

    assert list((scratch.folder / "local").iterdir()) == []


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


@pytest.mark.requirement("B1")
def test_every_action_refuses_an_output_whose_instrument_directory_exists(scratch: Any) -> None:
    discovery = scratch.discover()
    request = prepare_request(scratch, discovery)
    os.mkdir(request.output + "-instrument")

    with pytest.raises(OutputExistsError):
        prepare.run(request)


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
