"""What the package promises to export."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import xorsig

NAMES = [
    "FORMAT_VERSION",
    "MIX_SCHEME",
    "XOR_SCHEME",
    "CallFrame",
    "CallSite",
    "CaptureWriter",
    "CorruptBatchError",
    "Effects",
    "IterateSite",
    "KnownParameters",
    "PanicException",
    "PendingSignature",
    "Recorder",
    "SubscriptSite",
    "__version__",
    "byte_ranges",
    "fingerprint",
    "fingerprint_tensor",
    "materialize",
    "read_receipt",
    "region_mix",
    "region_xor",
    "row_xor",
    "verify_capture",
    "write_perfetto",
    "write_receipt",
    "xor",
]


@pytest.mark.requirement("F14")
def test_exported_names_are_these() -> None:
    assert xorsig.__all__ == NAMES
    assert all(hasattr(xorsig, name) for name in NAMES)


def test_versions_and_schemes() -> None:
    manifest = (Path(__file__).parents[2] / "Cargo.toml").read_text()
    declared = re.search(r'^version = "(.+)"$', manifest, re.MULTILINE)
    assert declared is not None
    assert xorsig.__version__ == declared[1]
    assert (xorsig.FORMAT_VERSION, xorsig.XOR_SCHEME, xorsig.MIX_SCHEME) == (
        1,
        "flat-u32-le-v1",
        "flat-u32-mix-v1",
    )


def test_every_export_says_what_it_does() -> None:
    undocumented = [name for name in NAMES if not getattr(xorsig, name).__doc__]
    assert undocumented == []


def test_readme_snippet_runs() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    snippets = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert len(snippets) == 1
    exec(compile(snippets[0], "README.md", "exec"), {})
