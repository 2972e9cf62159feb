"""The plan: what ``trace`` will instrument, bound to exact source bytes.

A plan holds no absolute path, time or random id, so the same discovery gives the same plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from opguard.tools.digests import sha256
from opguard.tools.formats import PLAN_VERSION
from opguard.tools.source.errors import InvalidPlanError

COVERAGE: Literal["observed_callsites_only"] = "observed_callsites_only"

Kind = Literal[
    "call",
    "binary",
    "compare",
    "unary",
    "subscript",
    "store",
    "augmented",
    "attribute",
    "iterate",
]
Depth = Literal["call", "aten"]
DepthChoice = Literal["auto", "call", "aten"]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Site(_Closed):
    """One expression that is recorded.

    Attributes:
        id: Unique in the plan, from 1; the number in the instrumented source and in records.
        file: Path relative to the checkout, with ``/``.
        line: First line, from 1.
        end_line: Last line.
        col: First column in UTF-8 bytes, from 0.
        end_col: Column after the last one.
        qualname: Qualified name of the code object that evaluates the expression.
        kind: Form of the expression.
        callee: What is called, as normalised text; an operator's symbol for the other forms.
        text: The expression's source on one line, at most 120 characters.
        statement: Line and column of the statement that holds the expression.
        ordinal: Number of the expression among all of the statement that could be recorded, in
            source order from 0, whether or not they are.
        depth: ``call`` records arguments and results, ``aten`` the operators inside as well.
        observed: Whether tensor operations were seen here; false where the other version's
            observations, or a change of the statement, put the callsite in.
        operators: Names of the operators seen, sorted.
        count: Operations seen, over all ranks.
    """

    id: int
    file: str
    line: int
    end_line: int
    col: int
    end_col: int
    qualname: str
    kind: Kind
    callee: str
    text: str
    statement: tuple[int, int]
    ordinal: int
    depth: Depth
    observed: bool
    operators: tuple[str, ...] = ()
    count: int = 0

    @property
    def span(self) -> tuple[int, int, int, int]:
        """``(line, end_line, col, end_col)``."""
        return (self.line, self.end_line, self.col, self.end_col)


class PlanFile(_Closed):
    """A file that will be instrumented: path in the checkout, bytes, SHA-256 of the original."""

    path: str
    size: int
    sha256: str


class Excluded(_Closed):
    """Something observed that will not be instrumented, and why."""

    path: str
    reason: str


class Plan(_Closed):
    """Everything that ``trace`` needs to know.

    Attributes:
        patterns: What the user limited the callsites to; none for all.

    Source:
        Protocol requirements C2, C3, C5.
    """

    plan_version: Literal[1] = PLAN_VERSION
    coverage: Literal["observed_callsites_only"] = COVERAGE
    configuration_sha256: str
    files: tuple[PlanFile, ...]
    sites: tuple[Site, ...]
    excluded: tuple[Excluded, ...]
    patterns: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Canonical text: the same plan gives the same bytes."""
        return json.dumps(self.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"


def build_plan(
    files: Iterable[PlanFile],
    sites: Iterable[Site],
    excluded: Iterable[Excluded],
    configuration: str,
    patterns: Iterable[str] = (),
) -> Plan:
    """Bind a selection to its configuration's text.

    Args:
        files: Files with at least one site.
        sites: Selected callsites.
        excluded: What was observed and left out.
        configuration: The YAML text written next to the plan.
        patterns: What the user limited the callsites to.
    """
    return Plan(
        configuration_sha256=sha256(configuration.encode()),
        files=tuple(sorted(files, key=lambda file: file.path)),
        sites=tuple(sorted(sites, key=lambda site: site.id)),
        excluded=tuple(sorted(excluded, key=lambda entry: (entry.path, entry.reason))),
        patterns=tuple(patterns),
    )


def load_plan(path: Path) -> Plan:
    """Read a plan written by ``Plan.to_json``.

    Raises:
        InvalidPlanError: The file is missing, not JSON, or not a plan of this version.
    """
    try:
        return Plan.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InvalidPlanError(
            f"plan {path} cannot be read: {error.strerror}. Run prepare again.", path=str(path)
        ) from error
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"]) or "the document"
        raise InvalidPlanError(
            f"plan {path}: {where}: {problem['msg']}. Run prepare again with this version.",
            path=str(path),
            field=where,
        ) from error
