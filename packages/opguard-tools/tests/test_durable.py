"""The file operations below the transaction."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from opguard.tools import durable
from opguard.tools.digests import sha256


def test_exchange_swaps_two_names(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"1")
    second.write_bytes(b"2")

    durable.exchange(first, second)

    assert (first.read_bytes(), second.read_bytes()) == (b"2", b"1")


def test_exchange_with_a_missing_file_creates_nothing(tmp_path: Path) -> None:
    (tmp_path / "first").write_bytes(b"1")

    with pytest.raises(FileNotFoundError):
        durable.exchange(tmp_path / "first", tmp_path / "second")

    assert [path.name for path in tmp_path.iterdir()] == ["first"]


def test_publish_creates_a_whole_file_and_never_replaces_one(tmp_path: Path) -> None:
    path = tmp_path / "marker"
    durable.publish(path, b"one")
    with pytest.raises(FileExistsError):
        durable.publish(path, b"two")
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [
        ("marker", b"one")
    ]


def test_publish_works_on_file_systems_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)

    durable.publish(tmp_path / "marker", b"one")
    with pytest.raises(FileExistsError):
        durable.publish(tmp_path / "marker", b"two")

    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [
        ("marker", b"one")
    ]


def test_new_file_takes_over_mode_and_time(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.touch()
    model.chmod(0o4750)

    durable.write_new(tmp_path / "new", b"x" * 100_000, like=model, mtime_ns=1_234_567_890_123)

    status = (tmp_path / "new").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_mtime_ns) == (0o4750, 1_234_567_890_123)
    with pytest.raises(FileExistsError):
        durable.write_new(tmp_path / "new", b"")


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))

    durable.write_new(tmp_path / "new", b"0123456789")

    assert (tmp_path / "new").read_bytes() == b"0123456789"


def test_reading_does_not_follow_links_or_wait_for_pipes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")

    found = {
        name: durable.digest_of(tmp_path / name)
        for name in ("file", "link", "pipe", "missing", "file/below", ".")
    }

    assert found == {**dict.fromkeys(found), "file": sha256(b"x")}


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_file_systems_that_cannot_flush_directories_are_no_error_but_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fsync)

    if code == errno.EINVAL:
        durable.sync_directory(tmp_path)
    else:
        with pytest.raises(OSError, match=os.strerror(code)):
            durable.sync_directory(tmp_path)


def test_removing_what_is_gone_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    durable.remove(tmp_path / "file")
    durable.remove(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
