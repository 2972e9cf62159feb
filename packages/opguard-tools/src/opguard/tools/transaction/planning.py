"""Checks that come before any change: are the files those of the plan, can they be replaced?"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from opguard.tools import durable
from opguard.tools.digests import sha256
from opguard.tools.transaction import layout
from opguard.tools.transaction.errors import (
    CheckoutUnusableError,
    SourceMismatchError,
    UnsafeSourceError,
)

_NEVER_TOUCHED = frozenset({layout.STATE_DIRECTORY, ".git"})


@dataclass(frozen=True, kw_only=True)
class PlannedFile:
    """One file to be replaced, links resolved, content verified.

    Attributes:
        path: Relative to the checkout, ``/`` between parts.
        original: Content on disk, whose digest is the plan's.
        instrumented: Content during the operation.
        mode: Permission bits.
        mtime_ns: Modification time, ns since 1970.
    """

    path: str
    original: bytes
    instrumented: bytes
    mode: int
    mtime_ns: int


def plan_files(
    checkout: Path, files: Mapping[str, bytes], expected: Mapping[str, str]
) -> tuple[PlannedFile, ...]:
    """Read and check every planned file; changes nothing.

    A symbolic link is followed to its target. Two paths that lead to one file become one entry.

    Args:
        checkout: Real path of the checkout.
        files: New content by path relative to the checkout.
        expected: SHA-256 of the present content by the same paths.

    Raises:
        SourceMismatchError: Files are missing or have another digest; all are listed.
        UnsafeSourceError: Files cannot be replaced safely; all are listed with the reason.
        CheckoutUnusableError: Folders that hold planned files are not writable; all are listed.
        ValueError: The two mappings do not have the same keys, or are empty.

    Source:
        Protocol requirements D1, D4, C3.
    """
    if not files or files.keys() != expected.keys():
        raise ValueError("files and expected must name the same paths, at least one")
    mismatches: dict[str, str] = {}
    unsafe: dict[str, str] = {}
    planned: dict[tuple[int, int], PlannedFile] = {}
    for path in sorted(files):
        try:
            relative = _resolve(checkout, path)
        except FileNotFoundError:
            mismatches[path] = "is missing"
            continue
        except _UnsafeError as error:
            unsafe[path] = str(error)
            continue
        try:
            found = durable.read_regular(checkout / relative)
        except OSError as error:
            unsafe[path] = f"cannot be read: {error.strerror}"
            continue
        if found is None:
            unsafe[path] = "is not a regular file"
            continue
        content, status = found
        digest = sha256(content)
        if digest != expected[path]:
            mismatches[path] = f"has sha256 {digest}, the plan says {expected[path]}"
            continue
        if status.st_nlink > 1:
            unsafe[path] = f"has {status.st_nlink} hard links, of which only one would be replaced"
            continue
        identity = (status.st_dev, status.st_ino)
        twin = planned.get(identity)
        if twin is None:
            planned[identity] = PlannedFile(
                path=relative,
                original=content,
                instrumented=files[path],
                mode=stat.S_IMODE(status.st_mode),
                mtime_ns=status.st_mtime_ns,
            )
        elif twin.instrumented != files[path]:
            unsafe[path] = f"is the same file as {twin.path} but is to get another content"
    if mismatches:
        raise SourceMismatchError(
            f"sources in {checkout} are not those that were planned: {_listed(mismatches)}. "
            "Nothing was changed; put the files back, or run discover and prepare again",
            checkout=str(checkout),
            files=sorted(mismatches),
        )
    if unsafe:
        raise UnsafeSourceError(
            f"sources in {checkout} cannot be instrumented safely: {_listed(unsafe)}. Nothing was "
            "changed; exclude these files, or make them plain files inside the checkout",
            checkout=str(checkout),
            files=sorted(unsafe),
        )
    _require_writable(checkout, planned.values())
    return tuple(planned.values())


class _UnsafeError(Exception):
    """Why a path must not be replaced."""


def _resolve(checkout: Path, path: str) -> str:
    """The path below the checkout that ``path`` leads to.

    Raises:
        FileNotFoundError: Nothing is there.
        _UnsafeError: It leads elsewhere.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        raise _UnsafeError("has a name that is not valid UTF-8") from None
    try:
        target = (checkout / path).resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        raise _UnsafeError(f"cannot be reached: {error}") from None
    if not target.is_relative_to(checkout):
        raise _UnsafeError(f"leads to {target}, outside the checkout")
    relative = target.relative_to(checkout)
    inside = _NEVER_TOUCHED.intersection(relative.parts)
    if inside:
        raise _UnsafeError(f"leads into {sorted(inside)[0]}")
    return relative.as_posix()


def _require_writable(checkout: Path, planned: Iterable[PlannedFile]) -> None:
    """Check the folders whose entries will be replaced, before the first one is."""
    folders = sorted({(checkout / file.path).parent for file in planned})
    refused = [str(folder) for folder in folders if not os.access(folder, os.W_OK | os.X_OK)]
    if refused:
        raise CheckoutUnusableError(
            f"folders of planned sources are not writable: {', '.join(refused)}. Nothing was "
            "changed; make them writable for this user, or use a copy of the checkout",
            checkout=str(checkout),
            folders=refused,
        )


def _listed(reasons: Mapping[str, str]) -> str:
    """``path reason; path reason``."""
    return "; ".join(f"{path} {reason}" for path, reason in sorted(reasons.items()))
