"""The checkout lock between processes, threads, forks and users."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opguard.tools.transaction import CheckoutLock, CheckoutLockedError, CheckoutUnusableError

HOLDER = r"""
import os, pathlib, subprocess, sys, time
from opguard.tools.transaction import CheckoutLock

with CheckoutLock(pathlib.Path(sys.argv[1]), "trace"):
    if "fork" in sys.argv and os.fork() == 0:
        os.write(1, b"%d\n" % os.getpid())
        time.sleep(600)
    if "spawn" in sys.argv:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        os.write(1, b"%d\n" % child.pid)
    os.write(1, b"held\n")  # in one call: a forked child writes to the same pipe
    if "end" not in sys.argv:
        time.sleep(600)
"""


@contextlib.contextmanager
def holder(checkout: Path, *options: str) -> Any:
    """Another process that holds the lock; yields it and its child's pid, if it has one."""
    command = [sys.executable, "-c", HOLDER, str(checkout), *options]
    child = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            lines = {process.stdout.readline().strip()}
            if {"fork", "spawn"} & set(options):
                lines.add(process.stdout.readline().strip())
                (child,) = (int(line) for line in lines if line != "held")
            assert "held" in lines
            yield process, child
        finally:
            process.kill()
            if child is not None:
                os.kill(child, signal.SIGKILL)


@pytest.mark.requirement("D2")
def test_second_process_fails_at_once_and_names_the_holder(tmp_path: Path) -> None:
    with holder(tmp_path) as (process, _):
        with pytest.raises(CheckoutLockedError) as caught, CheckoutLock(tmp_path, "discover"):
            pass
        details = dict(caught.value.details)
        since = details.pop("since")
        assert details == {
            "checkout": str(tmp_path),
            "pid": process.pid,
            "host": socket.gethostname(),
            "operation": "trace",
        }
        for fact in (str(process.pid), socket.gethostname(), "trace", since):
            assert fact in str(caught.value)


@pytest.mark.requirement("D2")
def test_lock_is_free_after_its_holder_was_killed(tmp_path: Path) -> None:
    with holder(tmp_path) as (process, _):
        process.kill()
        process.wait()
        with CheckoutLock(tmp_path, "trace"):
            pass


@pytest.mark.requirement("D2")
@pytest.mark.parametrize("kind", ["fork", "spawn"])
@pytest.mark.parametrize("ending", ["end", "kill"])
def test_child_that_outlives_the_operation_does_not_keep_the_lock(
    tmp_path: Path, kind: str, ending: str
) -> None:
    with holder(tmp_path, kind, ending) as (process, child):
        if ending == "kill":
            process.kill()
        process.wait()
        os.kill(child, 0)
        with CheckoutLock(tmp_path, "trace"):
            pass


def test_forked_child_does_not_unlock_its_parent(tmp_path: Path, harness: Any) -> None:
    lock = CheckoutLock(tmp_path, "trace")
    with lock:

        def child() -> str:
            lock.__exit__(None, None, None)
            with CheckoutLock(tmp_path, "other"):
                return "locked twice"

        assert harness.in_child(child).error_type == "checkout_locked"
        assert harness.in_child(child).error_type == "checkout_locked"


def test_second_lock_in_the_same_process_is_refused(tmp_path: Path) -> None:
    with (
        CheckoutLock(tmp_path, "one"),
        pytest.raises(CheckoutLockedError),
        CheckoutLock(tmp_path, "two"),
    ):
        pass
    with CheckoutLock(tmp_path, "three"):
        pass


def test_lock_object_cannot_be_entered_twice(tmp_path: Path) -> None:
    with CheckoutLock(tmp_path, "one") as lock, pytest.raises(RuntimeError), lock:
        pass


def test_checkout_reached_through_a_link_is_the_same_checkout(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (tmp_path / "link").symlink_to(checkout)
    with (
        CheckoutLock(checkout, "one"),
        pytest.raises(CheckoutLockedError),
        CheckoutLock(tmp_path / "link", "two"),
    ):
        pass


def test_lock_survives_its_folder_being_cleaned_away_by_another_holder(tmp_path: Path) -> None:
    with CheckoutLock(tmp_path, "one"):
        shutil.rmtree(tmp_path / ".opguard")
    with CheckoutLock(tmp_path, "two") as lock:
        assert lock.path.exists()


def test_folder_removed_between_open_and_lock_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock
    calls = []

    def flock(descriptor: int, operation: int) -> None:
        if not calls:
            shutil.rmtree(tmp_path / ".opguard")
        calls.append(operation)
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)

    with CheckoutLock(tmp_path, "one") as lock:
        with pytest.raises(CheckoutLockedError), CheckoutLock(tmp_path, "two"):
            pass
        assert lock.path.exists()


def test_lock_file_replaced_between_open_and_lock_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock
    calls = []

    def flock(descriptor: int, operation: int) -> None:
        if not calls:
            (tmp_path / ".opguard" / "lock").unlink()
            (tmp_path / ".opguard" / "lock").touch()
        calls.append(operation)
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)

    with (
        CheckoutLock(tmp_path, "one"),
        pytest.raises(CheckoutLockedError),
        CheckoutLock(tmp_path, "two"),
    ):
        pass


def test_holder_without_a_readable_name_is_reported_as_unknown(tmp_path: Path) -> None:
    with CheckoutLock(tmp_path, "one") as lock:
        lock.path.write_bytes(b"{torn")
        with pytest.raises(CheckoutLockedError) as caught, CheckoutLock(tmp_path, "two"):
            pass
    assert caught.value.details["pid"] is None
    assert "process unknown" in str(caught.value)


def test_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)

    with pytest.raises(CheckoutUnusableError, match="file locks"), CheckoutLock(tmp_path, "one"):
        pass


def test_missing_checkout_and_file_as_checkout_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(CheckoutUnusableError):
            CheckoutLock(path, "one")


def test_checkout_that_is_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(CheckoutUnusableError, match="cannot be reached"):
        CheckoutLock(tmp_path / "loop", "one")


@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
def test_state_folder_that_is_something_else_is_refused(tmp_path: Path, kind: str) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    state = checkout / ".opguard"
    if kind == "file":
        state.touch()
    elif kind == "link":
        state.symlink_to(tmp_path)
    else:
        state.symlink_to(tmp_path / "nowhere")

    with pytest.raises(CheckoutUnusableError, match=r"\.opguard"), CheckoutLock(checkout, "one"):
        pass


def test_read_only_checkout_is_refused_with_a_clear_error(open_root: Path, harness: Any) -> None:
    checkout = open_root / "checkout"
    checkout.mkdir(mode=0o555)

    def child() -> None:
        with CheckoutLock(checkout, "trace"):
            pass

    ending = harness.in_child(child, as_nobody=True)

    assert ending.error_type == "checkout_unusable"
    assert "make the checkout writable" in ending.trace


def test_lock_file_of_another_user_is_refused_with_a_clear_error(
    open_root: Path, harness: Any
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to make a file of another user")
    checkout = open_root / "checkout"
    checkout.mkdir()
    checkout.chmod(0o777)
    with CheckoutLock(checkout, "trace"):
        pass

    def child() -> None:
        with CheckoutLock(checkout, "trace"):
            pass

    ending = harness.in_child(child, as_nobody=True)

    assert ending.error_type == "checkout_unusable"


@pytest.mark.requirement("D8")
def test_state_folder_is_invisible_to_git_even_after_a_torn_gitignore(project: Any) -> None:
    (project.checkout / ".opguard").mkdir()
    (project.checkout / ".opguard" / ".gitignore").touch()

    with CheckoutLock(project.checkout, "trace"):
        assert project.git_status() == ""
    (project.checkout / ".opguard" / "diagnostics.txt").write_text("x")

    assert project.git_status() == ""
    assert (project.checkout / ".opguard" / ".gitignore").read_bytes() == b"*\n"
