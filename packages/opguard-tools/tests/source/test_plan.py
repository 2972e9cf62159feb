"""Tests of plans."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from opguard.tools.source import (
    Excluded,
    InvalidPlanError,
    Plan,
    PlanFile,
    Site,
    build_plan,
    load_plan,
)


def site(number: int) -> Site:
    return Site(
        id=number,
        file="m.py",
        line=number,
        end_line=number,
        col=0,
        end_col=4,
        qualname="<module>",
        kind="call",
        callee="f",
        text="f(x)",
        statement=(number, 0),
        ordinal=0,
        depth="call",
        observed=True,
        operators=("aten.add.Tensor",),
        count=3,
    )


def plan() -> Plan:
    return build_plan(
        [
            PlanFile(path="z.py", size=1, sha256="0" * 64),
            PlanFile(path="m.py", size=2, sha256="1" * 64),
        ],
        [site(2), site(1)],
        [Excluded(path="b", reason="r"), Excluded(path="a", reason="r")],
        "configuration text",
    )


@pytest.mark.requirement("C2")
def test_plan_binds_configuration_and_files_in_a_fixed_order() -> None:
    document = json.loads(plan().to_json())
    assert document == {
        "plan_version": 1,
        "coverage": "observed_callsites_only",
        "patterns": [],
        "configuration_sha256": hashlib.sha256(b"configuration text").hexdigest(),
        "files": [
            {"path": "m.py", "size": 2, "sha256": "1" * 64},
            {"path": "z.py", "size": 1, "sha256": "0" * 64},
        ],
        "sites": [
            {
                "id": number,
                "file": "m.py",
                "line": number,
                "end_line": number,
                "col": 0,
                "end_col": 4,
                "qualname": "<module>",
                "kind": "call",
                "callee": "f",
                "text": "f(x)",
                "statement": [number, 0],
                "ordinal": 0,
                "depth": "call",
                "observed": True,
                "operators": ["aten.add.Tensor"],
                "count": 3,
            }
            for number in (1, 2)
        ],
        "excluded": [{"path": "a", "reason": "r"}, {"path": "b", "reason": "r"}],
    }


def test_plan_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan().to_json(), encoding="utf-8")
    assert load_plan(path) == plan()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{", "the document"),
        ("{}", "configuration_sha256"),
        (plan().to_json().replace('"plan_version": 1', '"plan_version": 2'), "plan_version"),
        (plan().to_json().replace('"coverage"', '"covers": 1, "coverage"'), "covers"),
        (plan().to_json().replace('"kind": "call"', '"kind": "magic"'), "sites.0.kind"),
    ],
)
def test_malformed_plan_is_refused_by_field(tmp_path: Path, text: str, field: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidPlanError) as caught:
        load_plan(path)
    assert caught.value.details == {"path": str(path), "field": field}


def test_missing_plan_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidPlanError) as caught:
        load_plan(tmp_path / "plan.json")
    assert caught.value.details == {"path": str(tmp_path / "plan.json")}
