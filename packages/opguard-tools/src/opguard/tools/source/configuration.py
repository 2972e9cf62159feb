"""The selection's configuration: YAML text that people can read and ``trace`` checks by digest.

Everything in it comes from the selection in a fixed order, so the same discovery gives the same
bytes. A global entry point and explicit metadata variables are not part of it; metadata is
automatic and limited to the files listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from opguard.tools.formats import CONFIGURATION_VERSION
from opguard.tools.source.errors import ConfigurationError
from opguard.tools.source.plan import COVERAGE, Depth, Excluded, Kind, PlanFile, Site

UNSUPPORTED_SECTIONS = ("entry", "meta_vars")

_LINE_CHARACTERS = 100


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ConfiguredCallsite(_Closed):
    """One callsite: its number in the plan, place, form and depth."""

    id: int
    place: str
    kind: Kind
    callee: str
    depth: Depth


class ConfiguredFile(_Closed):
    """One file with its digest and callsites."""

    path: str
    sha256: str
    callsites: tuple[ConfiguredCallsite, ...]


class Configuration(_Closed):
    """A parsed configuration."""

    configuration_version: Literal[1]
    coverage: Literal["observed_callsites_only"]
    files: tuple[ConfiguredFile, ...]
    excluded: tuple[Excluded, ...] = ()


def configuration_text(
    files: Sequence[PlanFile], sites: Sequence[Site], excluded: Sequence[Excluded]
) -> str:
    """Normalised YAML of a selection.

    Source:
        Protocol requirements C1, C5.
    """
    document = {
        "configuration_version": CONFIGURATION_VERSION,
        "coverage": COVERAGE,
        "files": [
            {
                "path": file.path,
                "sha256": file.sha256,
                "callsites": [_callsite(site) for site in sites if site.file == file.path],
            }
            for file in files
        ],
        "excluded": [entry.model_dump() for entry in excluded],
    }
    text: str = yaml.safe_dump(
        document,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=_LINE_CHARACTERS,
    )
    return text


def _callsite(site: Site) -> dict[str, Any]:
    return {
        "id": site.id,
        "place": f"{site.line}:{site.col}-{site.end_line}:{site.end_col}",
        "kind": site.kind,
        "callee": site.callee,
        "depth": site.depth,
    }


def parse_configuration(text: str) -> Configuration:
    """Read a configuration back.

    Raises:
        ConfigurationError: It is not YAML, has a section or field that is unknown or
            unsupported, or a value of the wrong type. ``details["section"]`` names it.

    Source:
        Protocol requirement C6.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _error(f"it is not YAML: {error}", "") from error
    if not isinstance(document, dict):
        raise _error("it is not a mapping of sections", "")
    for section in UNSUPPORTED_SECTIONS:
        if section in document:
            raise _error(f"the section {section!r} is not supported", section)
    try:
        return Configuration.model_validate(document)
    except ValidationError as error:
        problem = error.errors()[0]
        section = ".".join(str(part) for part in problem["loc"])
        raise _error(f"{section}: {problem['msg']}", section) from error


def _error(problem: str, section: str) -> ConfigurationError:
    return ConfigurationError(
        f"configuration: {problem}. Remove it, or write the configuration with prepare.",
        section=section,
    )
