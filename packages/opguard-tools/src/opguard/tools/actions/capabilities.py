"""``capabilities``: what is installed here, what works, and what this version does not have.

Looks at metadata and at where modules would come from; imports neither torch nor the packages that
the other actions work with.
"""

from __future__ import annotations

import importlib.util
import platform
import sys
from importlib import metadata

from opguard.tools._version import __version__
from opguard.tools.actions import ACTIONS
from opguard.tools.formats import DIFF_SCHEMA, PLAN_VERSION
from opguard.tools.protocol.models import (
    SUPPORTED_PROTOCOL_VERSIONS,
    AbsentFeature,
    Availability,
    CapabilitiesResult,
)

_DISTRIBUTIONS = ("opguard-core", "xorsig", "torch", "pydantic", "polars", "pyyaml")
_CAPTURE_MODULES = {
    "torch": "torch",
    "opguard.core": "opguard-core",
    "xorsig": "xorsig",
}
_ANALYSIS_MODULES = {
    "xorsig": "xorsig",
    "polars": "polars",
    "yaml": "pyyaml",
    "jinja2": "jinja2",
}

_ABSENT = {
    "rank_remapping": "Comparing rank i of one side with another rank j of the other.",
    "tolerance_verdicts": "Verdicts from tolerances or aggregates: values are equal or they "
    "differ, and `verdict` is always not_evaluated.",
    "step_coverage_validation": "Proof that every training step or callsite was observed.",
    "scope_refinement": "Automatic repetition of a capture with a narrower or deeper selection.",
    "preflight_caching": "Reuse of a discovery or plan without being told to.",
    "io_budgets": "Limits on writing for a whole cluster.",
    "align": "The action that applies a reviewed alignment map to a report.",
    "harness": "The harness for agents and its MCP server.",
    "device_validation": "Proof on a CUDA device: the kernels of opguard-cuda have been run in "
    "emulation only, the fetching of their results with a simulated device, and the attribution "
    "of device activity on recorded traces; collecting it has never run on a device.",
}


def run() -> CapabilitiesResult:
    """Describe this installation.

    Source:
        Protocol requirements A1, E4.
    """
    return CapabilitiesResult(
        protocol_versions=list(SUPPORTED_PROTOCOL_VERSIONS),
        actions=["capabilities", *ACTIONS],
        commands=["diff", "recover", "schema"],
        versions={
            "python": platform.python_version(),
            "opguard-tools": __version__,
            **{name: _version(name) for name in _DISTRIBUTIONS},
        },
        formats={
            "capture": _capture_format(),
            "plan": PLAN_VERSION,
            "diff_document": int(DIFF_SCHEMA["version"]),
        },
        fingerprint_schemes=["flat-u32-le-v1", "flat-u32-mix-v1"],
        capture=_availability(_CAPTURE_MODULES, linux_only=True),
        analysis=_availability(_ANALYSIS_MODULES),
        absent=[AbsentFeature(name=name, description=text) for name, text in _ABSENT.items()],
    )


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _capture_format() -> int | None:
    try:
        import xorsig
    except ImportError:
        return None
    return int(xorsig.FORMAT_VERSION)


def _availability(modules: dict[str, str], *, linux_only: bool = False) -> Availability:
    if linux_only and not sys.platform.startswith("linux"):
        return Availability(
            available=False,
            reason=f"workloads can be captured on Linux only, and this is {sys.platform}",
        )
    missing = [package for module, package in modules.items() if not _importable(module)]
    if not missing:
        return Availability(available=True, reason=None)
    return Availability(
        available=False,
        reason=f"not installed in this environment: {', '.join(missing)}; install "
        f"{'it' if len(missing) == 1 else 'them'} with pip",
    )


def _importable(module: str) -> bool:
    """Whether a module would be found; imports at most its parent package."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
