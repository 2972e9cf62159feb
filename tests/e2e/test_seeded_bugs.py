"""One silent bug at a time, put into small trainings: ``first`` names its statement."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from opguard_seeded import BUGS, HARMLESS, Bug
from opguard_warm import warm_launcher

from opguard_e2e import run_diff

PROGRAMS = Path(__file__).parent / "seeded"


def make_pair(bug: Bug, folder: Path) -> tuple[Path, Path]:
    """The program as it is and with the bug."""
    baseline, candidate = folder / "baseline", folder / "candidate"
    for side in (baseline, candidate):
        shutil.copytree(PROGRAMS / bug.program, side)
    for edit in bug.edits:
        path = candidate / edit.file
        text = path.read_text()
        assert text.count(edit.old) == 1, edit
        path.write_text(text.replace(edit.old, edit.new))
    return baseline, candidate


def lines_with(path: Path, text: str) -> set[int]:
    """Numbers of the lines at which an occurrence of ``text`` begins."""
    source = path.read_text()
    found = set()
    start = source.find(text)
    while start >= 0:
        found.add(source.count("\n", 0, start) + 1)
        start = source.find(text, start + 1)
    assert found, f"{text!r} is not in {path}"
    return found


@pytest.fixture(scope="module")
def launcher() -> Iterator[str]:
    """Workers are forked from one process that has imported torch."""
    with tempfile.TemporaryDirectory() as folder, warm_launcher(Path(folder)) as command:
        yield command


@pytest.mark.parametrize("name", BUGS)
def test_first_origin_names_the_statement_of_the_bug(
    name: str, launcher: str, tmp_path: Path
) -> None:
    bug = BUGS[name]
    baseline, candidate = make_pair(bug, tmp_path)
    status, document = run_diff(baseline, candidate, tmp_path / "out", launcher=launcher)
    assert status == 1
    first = document["first"]
    named = {
        (side, first[side]["file"], line)
        for side in ("baseline", "candidate")
        if first[side] is not None
        for line in range(first[side]["line"], (first[side]["end_line"] or first[side]["line"]) + 1)
    }
    accepted = {
        (side, file, line)
        for side, file, text in bug.accepted
        for line in lines_with(tmp_path / side / file, text)
    }
    assert named & accepted, (first["baseline"], first["candidate"], first["why"])


@pytest.mark.parametrize("name", HARMLESS)
def test_program_that_computes_the_same_has_no_origin(
    name: str, launcher: str, tmp_path: Path
) -> None:
    baseline, candidate = make_pair(HARMLESS[name], tmp_path)
    status, document = run_diff(baseline, candidate, tmp_path / "out", launcher=launcher)
    assert (status, document["origins"], document["first"]) == (0, [], None)
