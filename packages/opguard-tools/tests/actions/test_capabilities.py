from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec

import pytest

import xorsig
from opguard.tools import __version__
from opguard.tools.actions import capabilities
from opguard.tools.formats import DIFF_SCHEMA, PLAN_VERSION
from opguard.tools.protocol.models import Availability


def hide(monkeypatch: pytest.MonkeyPatch, *hidden: str) -> None:
    """Let some modules be as if they were not installed."""
    find_spec = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in hidden else find_spec(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)


def test_versions_and_formats_are_those_of_the_code() -> None:
    result = capabilities.run()

    assert result.protocol_versions == [1]
    assert result.versions["opguard-tools"] == __version__
    assert result.formats == {
        "capture": xorsig.FORMAT_VERSION,
        "plan": PLAN_VERSION,
        "diff_document": DIFF_SCHEMA["version"],
    }
    assert result.fingerprint_schemes == [xorsig.XOR_SCHEME, xorsig.MIX_SCHEME]


@pytest.mark.requirement("E4")
def test_what_this_version_does_not_have_is_listed() -> None:
    assert {feature.name for feature in capabilities.run().absent} >= {
        "rank_remapping",
        "tolerance_verdicts",
        "step_coverage_validation",
        "scope_refinement",
        "preflight_caching",
        "io_budgets",
    }


def test_everything_is_available_where_everything_is_installed() -> None:
    result = capabilities.run()

    assert result.analysis == Availability(available=True, reason=None)
    assert result.capture.available is (importlib.util.find_spec("torch") is not None)


def test_capture_without_torch_is_unavailable_and_analysis_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hide(monkeypatch, "torch", "opguard.core")

    result = capabilities.run()

    assert result.analysis.available
    assert result.capture == Availability(
        available=False,
        reason="not installed in this environment: torch, opguard-core; install them with pip",
    )


def test_capture_is_unavailable_on_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    result = capabilities.run()

    assert result.capture == Availability(
        available=False,
        reason="workloads can be captured on Linux only, and this is darwin",
    )
