from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from opguard.tools.actions import ACTIONS
from opguard.tools.protocol.errors import InvalidRequestError
from opguard.tools.protocol.models import (
    CapabilitiesResult,
    CompareRequest,
    DiscoverRequest,
    DiscoverResult,
    PrepareRequest,
    TraceRequest,
    Workload,
    stable_view,
)
from opguard.tools.protocol.models.base import example, nested_model
from opguard.tools.protocol.reading import validate
from opguard.tools.protocol.schema import protocol_schema

SNAPSHOT = Path(__file__).with_name("schema-v1.json")
ROOTS: list[type[BaseModel]] = [
    CapabilitiesResult,
    *(model for action in ACTIONS.values() for model in (action.request, action.result)),
]


def all_models() -> dict[str, type[BaseModel]]:
    found: dict[str, type[BaseModel]] = {}
    frontier = list(ROOTS)
    while frontier:
        model = frontier.pop()
        if model.__name__ not in found:
            found[model.__name__] = model
            nested = (nested_model(field.annotation) for field in model.model_fields.values())
            frontier.extend(inner for inner in nested if inner is not None)
    return found


def discover_request(**changes: Any) -> dict[str, Any]:
    document = example(DiscoverRequest)
    document.update(changes)
    return document


def workload(**changes: Any) -> dict[str, Any]:
    return discover_request(workload={**example(Workload), **changes})


@pytest.mark.requirement("A9")
@pytest.mark.parametrize("model", all_models().values(), ids=all_models().keys())
def test_every_field_is_described_and_its_example_is_valid(model: type[BaseModel]) -> None:
    assert model.model_config["extra"] == "forbid"
    assert [name for name, field in model.model_fields.items() if not field.description] == []
    document = example(model)
    assert model.model_validate(document).model_dump(mode="json").keys() >= document.keys()


@pytest.mark.requirement("A9")
def test_schemas_have_not_changed_unnoticed() -> None:
    """To accept a change: opguard-tools schema > schema-v1.json, and note it in the changelog."""
    assert protocol_schema() == json.loads(SNAPSHOT.read_text())


@pytest.mark.requirement("A9")
@pytest.mark.parametrize(
    ("document", "field"),
    [
        (discover_request(colour="red"), "colour"),
        (workload(shell=True), "workload.shell"),
        (workload(ranks=[0, "1"]), "workload.ranks[1]"),
        (workload(ranks=[]), "workload.ranks"),
        (workload(ranks=[0, 0]), "workload.ranks"),
        (workload(ranks=[-1]), "workload.ranks[0]"),
        (workload(ranks=[True]), "workload.ranks[0]"),
        (workload(launcher="python"), "workload.launcher"),
        (workload(launcher=[]), "workload.launcher"),
        (workload(script=""), "workload.script"),
        (workload(script=None), "workload.script"),
        (workload(script="a\0b"), "workload.script"),
        (workload(script="\ud800"), "workload.script"),
        (workload(args=[1]), "workload.args[0]"),
        (workload(args=["a\0"]), "workload.args[0]"),
        (workload(env={"A": 1}), "workload.env.A"),
        (discover_request(timeout_seconds=0), "timeout_seconds"),
        (discover_request(timeout_seconds=-1), "timeout_seconds"),
        (discover_request(timeout_seconds="60"), "timeout_seconds"),
        (discover_request(timeout_seconds=float("inf")), "timeout_seconds"),
        (discover_request(timeout_seconds=True), "timeout_seconds"),
        (discover_request(protocol_version=2), "protocol_version"),
        (discover_request(output=""), "output"),
        ([], "(document)"),
    ],
)
def test_unfit_field_is_refused_with_its_path(document: Any, field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        validate(document, DiscoverRequest, source="request.json")

    assert caught.value.details == {"fields": [field]}
    assert f"{field}:" in caught.value.message


@pytest.mark.requirement("B1")
@pytest.mark.parametrize("field", ["output", "local_root", "timeout_seconds", "workload"])
def test_missing_field_is_refused_with_its_path(field: str) -> None:
    document = discover_request()
    del document[field]

    with pytest.raises(InvalidRequestError) as caught:
        validate(document, DiscoverRequest, source="request.json")

    assert caught.value.details == {"fields": [field]}


@pytest.mark.requirement("B1")
@pytest.mark.parametrize("name", ["", "A=B"])
def test_impossible_name_of_a_variable_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError):
        validate(workload(env={name: "1"}), DiscoverRequest, source="request.json")


def test_every_fault_of_a_request_is_listed() -> None:
    document = discover_request(timeout_seconds=0, output=1, extra=None)

    with pytest.raises(InvalidRequestError) as caught:
        validate(document, DiscoverRequest, source="request.json")

    assert sorted(caught.value.details["fields"]) == ["extra", "output", "timeout_seconds"]


def test_ranks_are_a_set_in_ascending_order() -> None:
    assert Workload.model_validate({**example(Workload), "ranks": [2, 0, 1]}).ranks == [0, 1, 2]


@pytest.mark.requirement("A10")
@pytest.mark.parametrize(
    ("action", "request_model", "field"),
    [
        ("discover", PrepareRequest, "discovery"),
        ("prepare", TraceRequest, "plan"),
        ("trace", CompareRequest, "baseline"),
        ("trace", CompareRequest, "candidate"),
    ],
)
def test_result_is_accepted_unchanged_by_the_next_request(
    action: str, request_model: type[BaseModel], field: str
) -> None:
    result = ACTIONS[action].result.model_validate(example(ACTIONS[action].result))
    document = json.loads(result.model_dump_json())

    request = request_model.model_validate({**example(request_model), field: document})

    assert getattr(request, field) == result


@pytest.mark.requirement("A10")
def test_result_of_another_action_is_refused() -> None:
    document = {**example(PrepareRequest), "discovery": example(ACTIONS["trace"].result)}

    with pytest.raises(InvalidRequestError) as caught:
        validate(document, PrepareRequest, source="request.json")

    assert "discovery.action" in caught.value.details["fields"]


@pytest.mark.requirement("A11")
def test_stable_view_leaves_out_what_varies_at_every_depth() -> None:
    first = example(DiscoverResult)
    second = json.loads(json.dumps(first))
    second.update(capture_id="f" * 32, started_at="2027-01-01T00:00:00Z", elapsed_seconds=9.0)
    second["captured"][0].update(pid=1, host="other", batches=9)

    views = [stable_view(DiscoverResult.model_validate(item)) for item in (first, second)]

    assert views[0] == views[1]
    assert "capture_id" not in views[0]
    assert views[0]["captured"][0]["rank"] == 0


def test_model_without_an_example_is_found() -> None:
    class Undocumented(BaseModel):
        value: int

    with pytest.raises(LookupError, match="value of Undocumented"):
        example(Undocumented)
