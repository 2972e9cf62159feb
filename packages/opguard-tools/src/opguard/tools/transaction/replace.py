"""Replacing a source file without ever replacing an edit.

A check followed by ``rename`` leaves an instant in which a save by the user would be overwritten.
So the new file and the old one are *exchanged* (``renameat2`` with ``RENAME_EXCHANGE``): what was
displaced then lies in the staging place, is checked there, and is exchanged back if it is not what
was expected. Only something that is written into the displaced file itself, by a program that had
opened it before the exchange and writes after the check, is not seen at once; the displaced
original stays in the staging place during the operation, and such a write is found when the file is
restored.

File systems without exchange (most network file systems, systems other than Linux) get a check
immediately followed by an atomic rename. A save that falls between the two, some microseconds, is
lost there; the documentation tells users not to edit a checkout during an operation.
"""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from opguard.tools import durable
from opguard.tools.transaction import layout

_CANNOT_EXCHANGE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


@dataclass(frozen=True)
class Staging:
    """A place next to a source file, on the same file system, from which it is replaced.

    The first choice is ``CHECKOUT/.opguard/staging``, which git ignores. When the source lies on
    another mount, or its folder's quota forbids the move, a hidden name in its own folder is used.

    ``new`` may hold a file cut short and is always OpGuard's. ``swap`` is only ever a whole file:
    one that OpGuard wrote, the displaced original, or a user's edit that was displaced in the
    instant before a crash.
    """

    folder: Path
    stem: str

    @property
    def new(self) -> Path:
        """A file being written."""
        return self.folder / f"{self.stem}.new"

    @property
    def swap(self) -> Path:
        """A whole file, before and after an exchange."""
        return self.folder / f"{self.stem}.swap"


def staging_places(checkout: Path, path: str, stem: str) -> tuple[Staging, Staging]:
    """First and second choice for the source at ``path``."""
    folder = (checkout / PurePosixPath(path)).parent
    return (
        Staging(layout.state_directory(checkout) / layout.STAGING_NAME, stem),
        Staging(folder, f".opguard-{stem}"),
    )


def is_other_file_system(error: OSError) -> bool:
    """Whether a staging place cannot serve its source, and the second choice must."""
    return error.errno == errno.EXDEV


def stage(place: Staging, data: bytes, *, like: Path, mtime_ns: int) -> None:
    """Write ``data`` to ``place.swap``, whole and flushed, with the permissions of ``like``.

    Raises:
        OSError: It cannot be written; ``place.swap`` does not exist then.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place.new)
    durable.make_directory(place.folder)
    durable.write_new(place.new, data, like=like, mtime_ns=mtime_ns)
    os.rename(place.new, place.swap)


def replace_verified(swap: Path, target: Path, expected: str) -> bool:
    """Put ``swap`` at ``target``, provided that the file there has the digest ``expected``.

    Atomic: ``target`` is the old or the new file at every instant. Afterwards ``swap`` holds the
    displaced file, or nothing where the file system cannot exchange.

    Returns:
        False when ``target`` was something else, which is there still, untouched. ``swap`` is as it
        was too, unless ``target`` changed twice within the exchange; then an edit is kept there.

    Raises:
        OSError: ``EXDEV`` when ``swap`` is on another file system, else what the system refused.
    """
    if durable.digest_of(target) != expected:
        return False
    ours = durable.digest_of(swap)
    try:
        durable.exchange(swap, target)
    except FileNotFoundError:
        return False  # deleted since the check; a plain rename would have brought it back
    except OSError as error:
        if error.errno not in _CANNOT_EXCHANGE:
            raise
        if durable.digest_of(target) != expected:
            return False
        os.replace(swap, target)
        return True
    if durable.digest_of(swap) == expected:
        return True
    durable.exchange(swap, target)
    if durable.digest_of(swap) != ours:
        # Saved once more in between: the later save belongs at the path, the earlier one is kept.
        durable.exchange(swap, target)
    return False
