"""Which files can be replaced."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from opguard.tools.transaction import SourceMismatchError, UnsafeSourceError
from opguard.tools.transaction.planning import PlannedFile, plan_files


def plan(checkout: Path, *paths: str, content: bytes = b"x") -> tuple[PlannedFile, ...]:
    digest = hashlib.sha256(content).hexdigest()
    return plan_files(checkout, dict.fromkeys(paths, b"new"), dict.fromkeys(paths, digest))


def test_planned_file_carries_what_restoring_needs(tmp_path: Path) -> None:
    target = tmp_path / "model.py"
    target.write_bytes(b"x")
    target.chmod(0o640)
    os.utime(target, ns=(5, 7))

    assert plan(tmp_path, "model.py") == (
        PlannedFile(path="model.py", original=b"x", instrumented=b"new", mode=0o640, mtime_ns=7),
    )


@pytest.mark.requirement("D4")
def test_links_that_lead_outside_or_nowhere_are_refused(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (tmp_path / "outside.py").write_bytes(b"x")
    (checkout / "out.py").symlink_to("../outside.py")
    (checkout / "gone.py").symlink_to("nowhere.py")
    (checkout / "loop.py").symlink_to("loop.py")

    with pytest.raises(UnsafeSourceError) as caught:
        plan(checkout, "out.py", "../outside.py", "loop.py")
    assert caught.value.details["files"] == ["../outside.py", "loop.py", "out.py"]
    with pytest.raises(SourceMismatchError, match=r"gone\.py is missing"):
        plan(checkout, "gone.py")


@pytest.mark.requirement("C3")
def test_hard_links_are_refused_with_their_number(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_bytes(b"x")
    os.link(tmp_path / "one.py", tmp_path / "two.py")

    with pytest.raises(UnsafeSourceError, match="2 hard links"):
        plan(tmp_path, "one.py")


def test_what_is_not_a_regular_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    os.mkfifo(tmp_path / "pipe.py")

    with pytest.raises(UnsafeSourceError) as caught:
        plan(tmp_path, "folder.py", "pipe.py")

    assert caught.value.details["files"] == ["folder.py", "pipe.py"]


def test_path_below_a_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_bytes(b"x")
    with pytest.raises(SourceMismatchError, match="is missing"):
        plan(tmp_path, "model.py/inner.py")


def test_git_and_opguard_folders_are_never_touched(tmp_path: Path) -> None:
    for folder in (".git", ".opguard"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "hook.py").write_bytes(b"x")
        with pytest.raises(UnsafeSourceError, match=folder):
            plan(tmp_path, f"{folder}/hook.py")


def test_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafeSourceError, match="UTF-8"):
        plan(tmp_path, "caf\udce9.py")


def test_unreadable_file_is_refused(open_root: Path, harness: Any) -> None:
    target = open_root / "model.py"
    target.write_bytes(b"x")
    target.chmod(0)

    ending = harness.in_child(lambda: plan(open_root, "model.py"), as_nobody=True)

    if os.geteuid() == 0:
        assert ending.error_type == "unsafe_source"
        assert "cannot be read" in ending.trace


def test_mismatch_is_reported_before_anything_else(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_bytes(b"x")
    os.link(tmp_path / "one.py", tmp_path / "two.py")
    (tmp_path / "three.py").write_bytes(b"edited")

    with pytest.raises(SourceMismatchError) as caught:
        plan(tmp_path, "one.py", "three.py")

    assert caught.value.details["files"] == ["three.py"]


def test_mappings_must_name_the_same_paths(tmp_path: Path) -> None:
    for files, expected in (({}, {}), ({"a": b""}, {}), ({"a": b""}, {"b": "0" * 64})):
        with pytest.raises(ValueError, match="same paths"):
            plan_files(tmp_path, files, expected)
