"""``trace`` on a checkout whose launcher is the fake one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from action_requests import prepare_request, prepared, trace_request, traced

from opguard.tools.actions import prepare, trace
from opguard.tools.digests import sha256
from opguard.tools.launch.errors import BatchCorruptError, LauncherFailedError, RankEndedError
from opguard.tools.protocol.errors import ArtifactMismatchError
from opguard.tools.protocol.models import TraceRequest
from opguard.tools.source import ConfigurationError, InvalidPlanError
from opguard.tools.transaction import SourceMismatchError


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


@pytest.mark.parametrize("variable", ["*.py", ""], ids=["other patterns", "none"])
def test_trace_refuses_a_plan_of_other_callsites_than_the_workload_asks_for(
    scratch: Any, variable: str
) -> None:
    asked = {} if variable else {"env": {"OPGUARD_SELECT_CALLSITES": "train.py"}}
    workload = scratch.workload(**asked)
    plan = prepare.run(prepare_request(scratch, scratch.discover(), workload=workload))
    request = trace_request(scratch, plan).model_dump()
    request["workload"]["env"] = {"OPGUARD_SELECT_CALLSITES": variable}

    with pytest.raises(ArtifactMismatchError) as caught:
        trace.run(TraceRequest.model_validate(request))

    assert caught.value.details == {"field": "plan.plan"}
    assert not Path(request["output"]).exists()


def test_trace_states_what_its_ranks_say_of_their_recording(scratch: Any) -> None:
    stated: dict[str, Any] = {
        "selection": {"steps": "0-3", "phases": None, "callsites": [], "levels": None},
        "device_activity": {"OPGUARD_CALLSITE_CUPTI": "off"},
    }

    result = trace.run(trace_request(scratch, prepared(scratch), {"receipt_fields": stated}))

    assert result.model_dump(include=set(stated)) == stated


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
