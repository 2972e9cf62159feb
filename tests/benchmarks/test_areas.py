"""Every area of the benchmarks runs; what it measures is not looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent
AREAS = sorted(path.stem for path in (BENCHMARKS / "areas").glob("[!_]*.py"))


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("area", AREAS)
def test_area_runs_and_writes_its_results(area: str, tmp_path: Path) -> None:
    completed = bench(area, "--smoke", "--output", str(tmp_path))
    assert completed.returncode == 0, completed.stderr
    document = json.loads((tmp_path / "results.json").read_text())
    assert [entry["name"] for entry in document["areas"]] == [area]
    groups = document["areas"][0]["groups"]
    assert groups
    ratios = [ratio["median"] for group in groups for ratio in group["ratios"]]
    assert all(ratio > 0 for ratio in ratios)
    assert area in (tmp_path / "results.html").read_text()


def test_unknown_area_is_refused_with_the_known_ones() -> None:
    completed = bench("no_such_area")
    assert completed.returncode == 2
    assert "no_such_area" in completed.stderr
    assert all(area in completed.stderr for area in AREAS)
