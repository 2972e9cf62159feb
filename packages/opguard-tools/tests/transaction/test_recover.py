"""Recovery after an operation that was killed in its body."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opguard.tools import durable
from opguard.tools.transaction import (
    CheckoutLockedError,
    RecoverReport,
    RecoveryError,
    RestoreError,
    recover,
    refuse_marked,
)


@pytest.fixture
def killed(project: Any, harness: Any) -> Any:
    """A checkout whose operation was killed while it was instrumented."""
    project.outputs += 1

    def child() -> None:
        project.outputs -= 1
        with project.transaction():
            harness.kill("")

    assert harness.in_child(child).signal == 9
    assert project.contents() == harness.instrumented
    return project


def report(project: Any, **changes: Any) -> RecoverReport:
    facts = {
        "checkout": project.checkout,
        "marker": project.marker,
        "originals": project.output / "originals.json",
        "marker_removed": True,
    }
    return RecoverReport(**{**facts, **changes})


ALL = ("model.py", "pkg/data.py", "pkg/frozen.py")


@pytest.mark.requirement("D7")
def test_recover_restores_everything_once_and_then_has_nothing_to_do(killed: Any) -> None:
    assert recover(killed.checkout) == report(killed, restored=ALL)
    killed.assert_pristine()
    assert recover(killed.checkout) == RecoverReport(checkout=killed.checkout)
    refuse_marked(killed.checkout)


@pytest.mark.requirement("D7")
def test_recover_works_from_the_copies_alone(killed: Any) -> None:
    """As by hand: the displaced originals beside the marker may be gone."""
    shutil.rmtree(killed.checkout / ".opguard" / "staging")

    assert recover(killed.checkout) == report(killed, restored=ALL)
    killed.assert_pristine()


@pytest.mark.requirement("D7")
def test_edited_files_are_left_alone_and_keep_the_marker(killed: Any, harness: Any) -> None:
    (killed.checkout / "model.py").write_bytes(b"edit\n")
    (killed.checkout / "pkg" / "data.py").unlink()
    for restored in (("pkg/frozen.py",), ()):
        found = recover(killed.checkout)
        assert found == report(
            killed,
            restored=restored,
            already_original=() if restored else ("pkg/frozen.py",),
            edited=found.edited,
            marker_removed=False,
        )
        assert list(found.edited) == ["model.py", "pkg/data.py"]
        assert found.edited["pkg/data.py"] == "no file"
        assert not found.complete
    assert (killed.checkout / "model.py").read_bytes() == b"edit\n"
    assert not (killed.checkout / "pkg" / "data.py").exists()

    for path in ("model.py", "pkg/data.py"):
        shutil.copy2(killed.output / "originals" / path, killed.checkout / path)

    assert recover(killed.checkout) == report(killed, already_original=ALL)
    killed.assert_pristine()


@pytest.mark.requirement("D7")
def test_damaged_and_missing_copies_are_not_used(killed: Any, harness: Any) -> None:
    shutil.rmtree(killed.checkout / ".opguard" / "staging")
    (killed.output / "originals" / "model.py").write_bytes(b"rot")
    (killed.output / "originals" / "pkg" / "data.py").unlink()

    found = recover(killed.checkout)

    assert found == report(
        killed, restored=("pkg/frozen.py",), failed=found.failed, marker_removed=False
    )
    assert list(found.failed) == ["model.py", "pkg/data.py"]
    assert killed.contents()["model.py"] == harness.instrumented["model.py"]


@pytest.mark.requirement("D7")
def test_displaced_original_is_used_when_the_copies_are_damaged(killed: Any) -> None:
    shutil.rmtree(killed.output / "originals")

    assert recover(killed.checkout) == report(killed, restored=ALL)
    killed.assert_pristine()


@pytest.mark.requirement("D7")
@pytest.mark.parametrize(
    "damage",
    [
        lambda project: project.marker.write_bytes(b'{"marker_version": 1, "oper'),
        lambda project: project.marker.write_bytes(b""),
        lambda project: (project.output / "originals.json").unlink(),
        lambda project: (project.output / "originals.json").write_bytes(b"{}"),
        lambda project: shutil.rmtree(project.output),
    ],
    ids=["torn marker", "empty marker", "no record", "other record", "no folder"],
)
def test_torn_or_missing_records_are_an_error_that_changes_nothing(
    killed: Any, damage: Any
) -> None:
    damage(killed)
    before = killed.snapshot()

    with pytest.raises(RecoveryError) as caught:
        recover(killed.checkout)

    assert caught.value.details["marker"] == str(killed.marker)
    assert "by hand" in str(caught.value)
    assert killed.snapshot() == before
    assert killed.marker.exists()


def test_record_with_a_matching_digest_but_another_version_is_refused(killed: Any) -> None:
    path = killed.output / "originals.json"
    record = json.loads(path.read_bytes())
    record["originals_version"] = 2
    path.write_bytes(json.dumps(record).encode())
    marker = json.loads(killed.marker.read_bytes())
    marker["originals_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    killed.marker.write_bytes(json.dumps(marker).encode())

    with pytest.raises(RecoveryError, match="originals_version"):
        recover(killed.checkout)


HOLDER = """
import hashlib, pathlib, sys
from opguard.tools.transaction import SourceTransaction

checkout, output = map(pathlib.Path, sys.argv[1:])
expected = {"model.py": hashlib.sha256((checkout / "model.py").read_bytes()).hexdigest()}
with SourceTransaction(checkout, output, {"model.py": b"new"}, expected):
    print("instrumented", flush=True)
    sys.stdin.read()
"""


@pytest.mark.requirement("D7")
def test_recover_refuses_while_the_operation_is_alive(project: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(project.checkout), str(tmp_path / "out")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(CheckoutLockedError) as caught:
            recover(project.checkout)
        assert caught.value.details["pid"] == process.pid
        assert project.contents()["model.py"] == b"new"
        process.kill()
        process.wait()

    assert recover(project.checkout).restored == ("model.py",)
    project.assert_pristine()


def test_moved_checkout_is_recovered_where_it_is_now(killed: Any) -> None:
    moved = killed.root / "moved"
    killed.checkout.rename(moved)

    assert recover(moved).restored == ALL

    moved.rename(killed.checkout)
    killed.assert_pristine()


def test_checkout_that_was_never_used_is_not_touched(tmp_path: Path) -> None:
    assert recover(tmp_path) == RecoverReport(checkout=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_marker_that_cannot_be_removed_is_an_error(
    killed: Any, harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(durable, "remove", refuse)

    with pytest.raises(RestoreError, match="could not be removed"):
        recover(killed.checkout)

    assert killed.contents() == harness.originals


def test_report_is_readable_as_lines_and_as_data(killed: Any) -> None:
    (killed.checkout / "model.py").unlink()
    found = recover(killed.checkout)
    originals = killed.output / "originals.json"

    assert found.lines() == [
        f"{killed.checkout}: marker {killed.marker}, originals {originals}",
        "restored: pkg/data.py",
        "restored: pkg/frozen.py",
        "edited, left alone: model.py (is now no file)",
        f"the marker stays: reconcile the files above with the originals in "
        f"{killed.output / 'originals'}, then run recover again; to keep an edit as it is, remove "
        "the marker by hand",
    ]
    assert found.document() == {
        "checkout": str(killed.checkout),
        "marker": str(killed.marker),
        "originals": str(originals),
        "restored": ["pkg/data.py", "pkg/frozen.py"],
        "already_original": [],
        "edited": {"model.py": "no file"},
        "failed": {},
        "marker_removed": False,
    }
    assert RecoverReport(checkout=killed.checkout).lines() == [
        f"{killed.checkout}: no marker, nothing to recover"
    ]
