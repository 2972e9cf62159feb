"""Pairs of checkouts for the tests of ``diff``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkout_pairs import Finished, Pair


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


@pytest.fixture(scope="module")
def different(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    made = Pair(tmp_path_factory.mktemp("different"))
    made.make(candidate=b"diff")
    return Finished(made, *made.diff("--json", "--output", "out"))
