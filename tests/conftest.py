"""Fixtures of the tests that cross packages."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from opguard_cases import shared_folder

from opguard_e2e import EXAMPLE, Checkout, Protocol, make_checkout


@pytest.fixture(scope="session")
def shared_root() -> Path:
    """The folder of case programs and vectors that is kept beside the repository."""
    root = shared_folder()
    if not root.is_dir():
        pytest.skip(f"no case folder at {root}; name one in OPGUARD_SHARED")
    return root


@pytest.fixture(scope="session")
def wheels() -> dict[str, Path]:
    """The built wheel of each distribution by its name."""
    folder = os.environ.get("OPGUARD_WHEELS")
    if not folder:
        pytest.skip("no wheels were built; `nox -s tests` builds them and sets OPGUARD_WHEELS")
    return {path.name.partition("-")[0]: path for path in sorted(Path(folder).glob("*.whl"))}


@pytest.fixture(scope="session")
def uv() -> str:
    """The uv executable of this environment or of PATH."""
    beside = shutil.which("uv", path=str(Path(sys.executable).parent))
    found = beside or shutil.which("uv")
    if not found:
        pytest.skip("uv is not installed; `nox -s tests` installs it")
    return found


@pytest.fixture
def example(tmp_path: Path) -> tuple[Checkout, Checkout]:
    """Fresh checkouts of the example's baseline and candidate."""
    return (
        make_checkout(EXAMPLE / "baseline", tmp_path / "baseline"),
        make_checkout(EXAMPLE / "candidate", tmp_path / "candidate"),
    )


@pytest.fixture
def protocol(tmp_path: Path) -> Protocol:
    """The automation protocol on a scratch folder."""
    return Protocol(tmp_path)
