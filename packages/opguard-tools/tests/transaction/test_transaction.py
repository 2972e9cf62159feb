"""A transaction as its caller sees it, on real files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from opguard.tools import durable
from opguard.tools.protocol.errors import OutputExistsError, PathConflictError
from opguard.tools.transaction import (
    CheckoutLock,
    CheckoutLockedError,
    CheckoutMarkedError,
    CheckoutUnusableError,
    SourceChangedError,
    SourceMismatchError,
    UnsafeSourceError,
    recover,
    refuse_marked,
)
from opguard.tools.transaction.transaction import SourceTransaction


@pytest.mark.requirement("D4")
@pytest.mark.requirement("D5")
def test_files_are_instrumented_in_the_body_and_identical_afterwards(
    project: Any, harness: Any
) -> None:
    modes = {path: found[2] for path, found in project.original.items()}

    with project.transaction():
        inside = project.snapshot()

    assert {path: found[0] for path, found in inside.items()} == harness.instrumented
    assert {path: found[2] for path, found in inside.items()} == modes
    project.assert_pristine()


@pytest.mark.requirement("D5")
def test_exception_in_the_body_passes_through_after_the_restore(project: Any) -> None:
    for kind in (ValueError, KeyboardInterrupt, SystemExit, MemoryError):
        with pytest.raises(kind), project.transaction():
            raise kind
        project.assert_pristine()


@pytest.mark.requirement("D3")
def test_originals_and_marker_say_what_is_needed_to_restore_by_hand(
    project: Any, harness: Any
) -> None:
    with project.transaction(operation="trace"):
        marker = json.loads(project.marker.read_bytes())
        record = json.loads((project.output / "originals.json").read_bytes())
        copies = {
            path: (project.output / "originals" / path).read_bytes() for path in harness.originals
        }
        instrumented = {
            path: (project.output / "instrumented" / path).read_bytes()
            for path in harness.originals
        }

    assert (copies, instrumented) == (harness.originals, harness.instrumented)
    since = marker.pop("since")
    assert since.endswith("+00:00")
    assert marker == {
        "marker_version": 1,
        "operation": "trace",
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "originals": str(project.output / "originals.json"),
        "originals_sha256": durable.digest_of(project.output / "originals.json"),
    }
    for entry in record["files"]:
        entry.pop("staging")
    assert record == {
        "originals_version": 1,
        "operation": "trace",
        "checkout": str(project.checkout),
        "files": [
            {
                "path": path,
                "size": len(content),
                "mode": f"{project.original[path][2]:04o}",
                "mtime_ns": project.original[path][1],
                "sha256": hashlib.sha256(content).hexdigest(),
                "instrumented_size": len(harness.instrumented[path]),
                "instrumented_sha256": hashlib.sha256(harness.instrumented[path]).hexdigest(),
            }
            for path, content in sorted(harness.originals.items())
        ],
    }
    copied = (project.output / "originals" / "pkg" / "frozen.py").stat()
    assert (copied.st_mtime_ns, stat.S_IMODE(copied.st_mode)) == project.original["pkg/frozen.py"][
        1:3
    ]


@pytest.mark.requirement("D4")
def test_instrumented_file_is_at_least_a_second_younger_than_its_original(project: Any) -> None:
    future_ns = 4_000_000_000_000_000_000
    os.utime(project.checkout / "model.py", ns=(future_ns, future_ns))
    project.original = project.snapshot()

    with project.transaction():
        inside = project.snapshot()

    for path, found in project.original.items():
        assert inside[path][1] >= found[1] + 1_000_000_000
    project.assert_pristine()


@pytest.mark.requirement("D1")
def test_every_mismatching_file_is_listed_and_nothing_is_changed(project: Any) -> None:
    (project.checkout / "model.py").write_bytes(b"other\n")
    (project.checkout / "pkg" / "frozen.py").unlink()
    before = project.snapshot()

    with pytest.raises(SourceMismatchError) as caught, project.transaction():
        pass

    assert caught.value.details["files"] == ["model.py", "pkg/frozen.py"]
    assert "pkg/frozen.py is missing" in str(caught.value)
    assert project.snapshot() == before
    assert not project.output.exists()
    assert not project.marker.exists()


@pytest.mark.requirement("D4")
def test_link_is_kept_and_its_target_is_replaced(project: Any, harness: Any) -> None:
    link = project.checkout / "alias.py"
    link.symlink_to("pkg/data.py")
    files = {"alias.py": b"new"}

    with project.transaction(
        files=files, expected={"alias.py": harness.expected["pkg/data.py"]}
    ) as transaction:
        assert link.is_symlink()
        assert (project.checkout / "pkg" / "data.py").read_bytes() == b"new"
        assert [file.path for file in transaction.files] == ["pkg/data.py"]

    link.unlink()
    project.assert_pristine()


@pytest.mark.requirement("D4")
def test_two_paths_to_one_file_are_one_replacement(project: Any, harness: Any) -> None:
    (project.checkout / "src").symlink_to("pkg")
    paths = ("src/data.py", "pkg/data.py")
    expected = dict.fromkeys(paths, harness.expected["pkg/data.py"])

    with project.transaction(files=dict.fromkeys(paths, b"new"), expected=expected) as transaction:
        assert [file.path for file in transaction.files] == ["pkg/data.py"]
    with (
        pytest.raises(UnsafeSourceError, match="same file"),
        project.transaction(files={paths[0]: b"one", paths[1]: b"two"}, expected=expected),
    ):
        pass

    (project.checkout / "src").unlink()
    project.assert_pristine()


@pytest.mark.requirement("D4")
def test_owner_and_group_are_kept_where_permitted(project: Any, harness: Any) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a file to another user")
    os.chown(project.checkout / "model.py", harness.nobody, harness.nobody)
    project.original = project.snapshot()

    with project.transaction():
        inside = project.snapshot()["model.py"]

    assert inside[3:] == (harness.nobody, harness.nobody)
    project.assert_pristine()


@pytest.mark.requirement("D4")
def test_file_of_another_owner_in_a_writable_folder_comes_back_with_its_owner(
    open_root: Path, harness: Any
) -> None:
    """The displaced original itself returns, so even an owner that cannot be set is kept."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make files of two users")
    project = harness.make_project(open_root)
    for folder in (open_root, project.checkout, project.checkout / "pkg"):
        folder.chmod(0o777)
    project.outputs += 1

    def child() -> tuple[int, int]:
        with project.transaction():
            status = (project.checkout / "model.py").stat()
            return status.st_uid, stat.S_IMODE(status.st_mode)

    ending = harness.in_child(child, as_nobody=True)

    assert ending.value == (harness.nobody, 0o644), ending
    assert project.snapshot() == project.original


@pytest.mark.requirement("D4")
def test_extended_attributes_are_kept(project: Any) -> None:
    target = project.checkout / "model.py"
    try:
        os.setxattr(target, "user.note", b"mine")
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error}")

    with project.transaction():
        assert os.getxattr(target, "user.note") == b"mine"

    assert os.getxattr(target, "user.note") == b"mine"


def test_chmod_during_the_operation_is_kept(project: Any) -> None:
    target = project.checkout / "model.py"

    with project.transaction():
        target.chmod(0o755)

    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    assert project.contents()["model.py"] == project.original["model.py"][0]


@pytest.mark.requirement("D6")
def test_edit_during_the_operation_is_kept_and_blocks_the_checkout(
    project: Any, harness: Any
) -> None:
    target = project.checkout / "model.py"

    with pytest.raises(SourceChangedError) as caught, project.transaction():
        target.write_bytes(harness.instrumented["model.py"] + b"# mine\n")

    assert caught.value.details == {
        "checkout": str(project.checkout),
        "marker": str(project.marker),
        "originals": str(project.output / "originals.json"),
        "edited": ["model.py"],
        "failed": [],
        "files": ["model.py"],
    }
    assert target.read_bytes() == harness.instrumented["model.py"] + b"# mine\n"
    assert (project.output / "originals" / "model.py").read_bytes() == harness.originals["model.py"]
    for path in ("pkg/data.py", "pkg/frozen.py"):
        assert project.snapshot()[path] == project.original[path]
    with pytest.raises(CheckoutMarkedError) as blocked, project.transaction():
        pass
    for fact in (
        str(project.marker),
        f"opguard-tools recover {project.checkout}",
        "originals.json",
    ):
        assert fact in str(blocked.value)


@pytest.mark.requirement("D6")
def test_body_that_fails_and_edits_reports_the_edit_with_the_failure_as_context(
    project: Any,
) -> None:
    def fail() -> None:
        (project.checkout / "model.py").unlink()
        raise ValueError("the capture failed")

    with pytest.raises(SourceChangedError) as caught, project.transaction():
        fail()

    assert isinstance(caught.value.__context__, ValueError)


@pytest.mark.requirement("D6")
def test_file_put_back_to_its_original_by_the_user_is_no_edit(project: Any, harness: Any) -> None:
    with project.transaction():
        (project.checkout / "model.py").write_bytes(harness.originals["model.py"])

    assert project.contents() == harness.originals
    assert not project.marker.exists()
    assert project.git_status() == ""


@pytest.mark.requirement("D6")
def test_edit_of_a_planned_file_without_insertions_is_found(project: Any, harness: Any) -> None:
    files = {**harness.instrumented, "model.py": harness.originals["model.py"]}

    with project.transaction(files=files):
        pass
    project.assert_pristine()
    with pytest.raises(SourceChangedError), project.transaction(files=files):
        (project.checkout / "model.py").write_bytes(b"edit\n")


def test_state_folder_cleaned_away_in_the_body_does_not_hinder_the_restore(
    project: Any, harness: Any
) -> None:
    with project.transaction():
        harness.git(project.checkout, "clean", "-fdxq")
        assert not project.marker.exists()

    assert project.snapshot() == project.original
    assert project.git_status() == ""


def test_output_removed_in_the_body_does_not_hinder_the_restore(project: Any) -> None:
    with project.transaction():
        shutil.rmtree(project.output)

    project.assert_pristine()


@pytest.mark.requirement("D2")
def test_checkout_is_locked_for_the_extent_unless_this_process_holds_it(project: Any) -> None:
    with (
        project.transaction(),
        pytest.raises(CheckoutLockedError, match="operation trace"),
        CheckoutLock(project.checkout, "discover"),
    ):
        pass
    with CheckoutLock(project.checkout, "trace") as lock:
        with project.transaction():
            pass
        with pytest.raises(CheckoutLockedError), CheckoutLock(project.checkout, "discover"):
            pass
        assert json.loads(lock.path.read_bytes())["pid"] == os.getpid()
    with CheckoutLock(project.checkout, "discover"):
        pass


@pytest.mark.requirement("D2")
def test_marked_checkout_is_refused_by_name_even_when_the_marker_is_torn(project: Any) -> None:
    refuse_marked(project.checkout)
    project.marker.parent.mkdir()
    for content in (b"", b'{"marker_version": 1', b"[]", b'{"marker_version": 2}'):
        project.marker.write_bytes(content)
        with pytest.raises(CheckoutMarkedError) as caught:
            refuse_marked(project.checkout)
        assert caught.value.details["marker"] == str(project.marker)


def test_marker_made_by_another_node_meanwhile_is_not_overwritten(
    project: Any, harness: Any
) -> None:
    """Where the lock does not reach the other node, the marker's exclusive name still decides."""
    foreign = b'{"marker_version": 1, "operation": "trace", "pid": 1, "host": "other", '
    foreign += b'"since": "now", "originals": "/o/originals.json", "originals_sha256": "'
    foreign += b"0" * 64 + b'"}'

    def child() -> None:
        def hook(_: int, name: str) -> None:
            if name == "before link":
                project.marker.write_bytes(foreign)

        harness.Faults(hook)
        with project.transaction():
            pass

    ending = harness.in_child(child)

    assert (ending.error_type, ending.details["host"]) == ("checkout_marked", "other")
    assert project.marker.read_bytes() == foreign
    assert project.snapshot() == project.original


def test_output_in_use_or_inside_the_checkout_is_refused(project: Any, harness: Any) -> None:
    used = project.root / "used"
    used.mkdir()
    (used / "file").touch()
    files, expected = harness.instrumented, harness.expected
    with (
        pytest.raises(OutputExistsError),
        SourceTransaction(project.checkout, used, files, expected),
    ):
        pass
    with (
        pytest.raises(PathConflictError),
        SourceTransaction(project.checkout, project.checkout / "out", files, expected),
    ):
        pass
    project.assert_pristine()


def test_unwritable_source_folder_is_refused_before_anything_is_changed(
    open_root: Path, harness: Any
) -> None:
    project = harness.make_project(open_root)
    project.checkout.chmod(0o777)
    (project.checkout / "pkg").chmod(0o555)
    (open_root / "outputs").mkdir()
    (open_root / "outputs").chmod(0o777)

    def child() -> None:
        out = open_root / "outputs" / "one"
        with SourceTransaction(project.checkout, out, harness.instrumented, harness.expected):
            pass

    ending = harness.in_child(child, as_nobody=True)

    assert ending.error_type == CheckoutUnusableError.error_type
    assert ending.details["folders"] == [str(project.checkout / "pkg")]
    assert project.snapshot() == project.original


def test_unwritable_output_is_an_error_that_leaves_the_sources(
    open_root: Path, harness: Any
) -> None:
    project = harness.make_project(open_root)
    for folder in (project.checkout, project.checkout / "pkg"):
        folder.chmod(0o777)
    project.outputs += 1

    def child() -> None:
        with project.transaction():
            pass

    ending = harness.in_child(child, as_nobody=True)

    assert ending.error_type == "instrumentation_failed"
    assert project.snapshot() == project.original
    assert recover(project.checkout).marker is None
