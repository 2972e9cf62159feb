"""Tests of the configuration's text and its parser."""

from __future__ import annotations

import pytest

from opguard.tools.source import (
    Configuration,
    ConfigurationError,
    Excluded,
    PlanFile,
    configuration_text,
    parse_configuration,
)
from opguard.tools.source.plan import Site

SITE = Site(
    id=1,
    file="m.py",
    line=3,
    end_line=4,
    col=2,
    end_col=9,
    qualname="f",
    kind="call",
    callee="größe: # f",
    text="t",
    statement=(3, 0),
    ordinal=0,
    depth="aten",
    observed=True,
)
FILES = [PlanFile(path="m.py", size=9, sha256="ab" * 32)]
EXCLUDED = [Excluded(path="site-packages/x.py", reason="outside the checkout")]

EXPECTED = f"""\
configuration_version: 1
coverage: observed_callsites_only
files:
- path: m.py
  sha256: {"ab" * 32}
  callsites:
  - id: 1
    place: 3:2-4:9
    kind: call
    callee: 'größe: # f'
    depth: aten
excluded:
- path: site-packages/x.py
  reason: outside the checkout
"""


@pytest.mark.requirement("C1")
@pytest.mark.requirement("C5")
def test_text_is_normalised() -> None:
    assert configuration_text(FILES, [SITE], EXCLUDED) == EXPECTED


def test_text_is_read_back_and_written_again_alike() -> None:
    configuration = parse_configuration(EXPECTED)
    assert isinstance(configuration, Configuration)
    assert configuration.files[0].callsites[0].callee == "größe: # f"
    assert configuration.excluded == tuple(EXCLUDED)


@pytest.mark.requirement("C6")
@pytest.mark.parametrize("section", ["entry", "meta_vars"])
def test_unsupported_section_is_refused_by_name(section: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(f"{EXPECTED}{section}: main\n")
    assert caught.value.details == {"section": section}
    assert section in str(caught.value)
    assert caught.value.error_type == "unsupported_configuration"


@pytest.mark.parametrize(
    ("text", "section"),
    [
        (EXPECTED + "filters: []\n", "filters"),
        (EXPECTED.replace("    kind: call\n", ""), "files.0.callsites.0.kind"),
        (EXPECTED.replace("kind: call", "kind: magic"), "files.0.callsites.0.kind"),
        (EXPECTED.replace("_version: 1", "_version: 2"), "configuration_version"),
        ("- a list\n", ""),
        ("a: [\n", ""),
        ("!!python/object:os.system {}\n", ""),
    ],
)
def test_malformed_configuration_is_refused(text: str, section: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(text)
    assert caught.value.details == {"section": section}
