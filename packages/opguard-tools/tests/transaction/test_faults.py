"""The system refuses a step: every step once, and a disk that stays full."""

from __future__ import annotations

import errno
import os
import warnings
from typing import Any

import pytest

from opguard.tools.transaction import recover

KNOWN = {"checkout_unusable", "instrumentation_failed", "restore_failed"}


@pytest.fixture(autouse=True)
def _no_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def run_whole(project: Any) -> Any:
    transaction = project.transaction()

    def operation() -> None:
        with transaction:
            pass

    return operation


@pytest.mark.requirement("D5")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_refused_step_leaves_the_originals_or_a_marker_that_recover_can_use(
    project: Any, harness: Any, code: int
) -> None:
    seen = set()

    def refuse(_: str) -> None:
        raise OSError(code, os.strerror(code), "injected")

    def check(number: int, ending: Any) -> None:
        if ending.error is not None:
            assert ending.error_type in KNOWN, ending
            seen.add(ending.error_type)
        if ending.error_type == "restore_failed":
            assert project.marker.exists() or project.snapshot() == project.original
            assert recover(project.checkout).complete
        else:
            assert not project.marker.exists(), (number, ending)
        staging = project.checkout / ".opguard" / "staging"
        if staging.exists():
            staging.rmdir()  # the refused step was the removal of this empty folder
        project.assert_pristine(number)

    harness.sweep(lambda: run_whole(project), refuse, check)

    assert seen == KNOWN


@pytest.mark.requirement("D5")
def test_disk_that_fills_during_the_capture_does_not_hinder_the_restore(
    project: Any, harness: Any
) -> None:
    def child() -> None:
        full = False

        def hook(_: int, name: str) -> None:
            if full and name in ("before write", "before open", "before mkdir", "before link"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "injected")

        harness.Faults(hook)
        with project.transaction():
            full = True

    assert harness.in_child(child).error is None
    project.assert_pristine()


def test_full_disk_where_files_cannot_be_exchanged_keeps_marker_and_is_recoverable(
    project: Any, harness: Any
) -> None:
    def child() -> None:
        full = False

        def hook(_: int, name: str) -> None:
            if full and name == "before write":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "injected")

        harness.Faults(hook, exchange=errno.EOPNOTSUPP)
        with project.transaction():
            full = True

    project.outputs += 1
    ending = harness.in_child(child)

    assert ending.error_type == "restore_failed"
    assert ending.details["failed"] == sorted(harness.originals)
    assert project.contents() == harness.instrumented
    assert sorted(recover(project.checkout).restored) == sorted(harness.originals)
    project.assert_pristine()


def test_one_file_that_cannot_be_restored_does_not_keep_back_the_others(
    project: Any, harness: Any
) -> None:
    def child() -> None:
        exchanges = 0

        def hook(_: int, name: str) -> None:
            nonlocal exchanges
            if name == "before exchange":
                exchanges += 1
                if exchanges == 4:  # the first of the three on the way back
                    raise OSError(errno.EIO, os.strerror(errno.EIO), "injected")

        harness.Faults(hook)
        with project.transaction():
            pass

    ending = harness.in_child(child)

    assert (ending.error_type, ending.details["failed"]) == ("restore_failed", ["model.py"])
    changed = {
        path for path, found in project.original.items() if project.snapshot()[path] != found
    }
    assert changed == {"model.py"}


def test_forked_child_that_leaves_the_body_restores_nothing(project: Any, harness: Any) -> None:
    parent = os.getpid()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            with project.transaction():
                child = os.fork()
                if child:
                    _, status = os.waitpid(child, 0)
                    contents = project.contents()
    finally:
        if os.getpid() != parent:
            os._exit(7)

    assert (os.waitstatus_to_exitcode(status), contents) == (7, harness.instrumented)
    project.assert_pristine()
