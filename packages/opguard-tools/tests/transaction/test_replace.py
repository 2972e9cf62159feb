"""Replacing one file, with a user who saves at the worst instants."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opguard.tools import durable
from opguard.tools.digests import sha256
from opguard.tools.transaction.replace import Staging, replace_verified, stage, staging_places


@pytest.fixture
def swap(tmp_path: Path) -> Path:
    (tmp_path / "target").write_bytes(b"old")
    place = Staging(tmp_path / "staging", "0")
    stage(place, b"new", like=tmp_path / "target", mtime_ns=5)
    return place.swap


def on_exchange(monkeypatch: pytest.MonkeyPatch, *saves: Callable[[], Any] | OSError) -> None:
    """Before the n-th exchange, run the n-th of ``saves`` or raise it."""
    real, queue = durable.exchange, list(saves)

    def exchange(first: Path, second: Path) -> None:
        if queue:
            save = queue.pop(0)
            if isinstance(save, OSError):
                raise save
            save()
        real(first, second)

    monkeypatch.setattr(durable, "exchange", exchange)


OLD = sha256(b"old")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_expected_file_is_exchanged(tmp_path: Path, swap: Path) -> None:
    assert replace_verified(swap, tmp_path / "target", OLD)
    assert contents(tmp_path) == {"target": b"new", "staging/0.swap": b"old"}


def test_unexpected_file_is_not_touched(tmp_path: Path, swap: Path) -> None:
    (tmp_path / "target").write_bytes(b"edit")
    assert not replace_verified(swap, tmp_path / "target", OLD)
    assert contents(tmp_path) == {"target": b"edit", "staging/0.swap": b"new"}


@pytest.mark.requirement("D7")
def test_save_between_check_and_exchange_is_put_back(
    tmp_path: Path, swap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    on_exchange(monkeypatch, lambda: target.write_bytes(b"edit"))

    assert not replace_verified(swap, target, OLD)

    assert contents(tmp_path) == {"target": b"edit", "staging/0.swap": b"new"}


@pytest.mark.requirement("D7")
def test_two_saves_within_the_exchange_are_both_kept_the_later_one_in_place(
    tmp_path: Path, swap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    on_exchange(
        monkeypatch, lambda: target.write_bytes(b"first"), lambda: target.write_bytes(b"second")
    )

    assert not replace_verified(swap, target, OLD)

    assert contents(tmp_path) == {"target": b"second", "staging/0.swap": b"first"}


def test_file_deleted_between_check_and_exchange_is_not_brought_back(
    tmp_path: Path, swap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    on_exchange(monkeypatch, target.unlink)

    assert not replace_verified(swap, target, OLD)

    assert contents(tmp_path) == {"staging/0.swap": b"new"}


def test_without_exchange_a_checked_rename_replaces(
    tmp_path: Path, swap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    on_exchange(monkeypatch, OSError(errno.EOPNOTSUPP, "no exchange"))

    assert replace_verified(swap, target, OLD)

    assert contents(tmp_path) == {"target": b"new"}


def test_without_exchange_a_save_before_the_second_check_is_kept(
    tmp_path: Path, swap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"

    def exchange(first: Path, second: Path) -> None:
        target.write_bytes(b"edit")
        raise OSError(errno.EINVAL, "no exchange")

    monkeypatch.setattr(durable, "exchange", exchange)

    assert not replace_verified(swap, target, OLD)
    assert contents(tmp_path) == {"target": b"edit", "staging/0.swap": b"new"}


def test_other_refusals_are_passed_on(
    tmp_path: Path, swap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_exchange(monkeypatch, OSError(errno.EXDEV, os.strerror(errno.EXDEV)))
    with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
        replace_verified(swap, tmp_path / "target", OLD)


def test_staging_overwrites_a_file_cut_short_by_a_crash(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")
    first, second = staging_places(tmp_path, "target", "0-1")
    first.folder.mkdir(parents=True)
    first.new.write_bytes(b"ne")

    for place in (first, second):
        stage(place, b"new", like=tmp_path / "target", mtime_ns=5)
        assert (place.swap.read_bytes(), place.new.exists()) == (b"new", False)

    assert first.swap == tmp_path / ".opguard" / "staging" / "0-1.swap"
    assert second.swap == tmp_path / ".opguard-0-1.swap"
