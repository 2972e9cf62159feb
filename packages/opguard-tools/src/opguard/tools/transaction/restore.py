"""Bringing instrumented files back to their originals, in a running operation or after a crash."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from opguard.tools import durable
from opguard.tools.digests import sha256
from opguard.tools.transaction import layout, replace
from opguard.tools.transaction.bytecode import remove_stale_bytecode
from opguard.tools.transaction.records import OriginalFile


class DamagedCopyError(Exception):
    """The copy of an original is missing or not the original."""


@dataclass(kw_only=True)
class Outcome:
    """What became of each file; every path is in exactly one of the four.

    Attributes:
        restored: Had the instrumented content, has the original one now.
        already_original: Had the original content.
        edited: Path to what was found there instead: a user's edit, left alone.
        failed: Path to why it could not be restored, although it should be.
    """

    restored: list[str] = field(default_factory=list)
    already_original: list[str] = field(default_factory=list)
    edited: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every file has its original content."""
        return not self.edited and not self.failed


def restore_files(
    checkout: Path,
    files: Iterable[OriginalFile],
    original: Callable[[OriginalFile], bytes],
) -> Outcome:
    """Restore the files whose content is exactly the instrumented one; touch no other.

    Every file is tried, whatever happens to the others. Running it again, also after it was
    killed, completes what is left.

    Args:
        checkout: Real path of the checkout.
        files: The files of the transaction.
        original: Gives the original content of one; its digest is checked here. It may raise
            ``DamagedCopyError``.

    Source:
        Protocol requirements D4-D7.
    """
    outcome = Outcome()
    for file in files:
        try:
            _restore_file(checkout, file, original, outcome)
        except OSError as error:
            outcome.failed[file.path] = f"{error.strerror} ({error.filename or file.path})"
        except DamagedCopyError as error:
            outcome.failed[file.path] = str(error)
    with contextlib.suppress(OSError):  # absent, or not empty because an edit is kept in it
        os.rmdir(layout.state_directory(checkout) / layout.STAGING_NAME)
    return outcome


def _restore_file(
    checkout: Path,
    file: OriginalFile,
    original: Callable[[OriginalFile], bytes],
    outcome: Outcome,
) -> None:
    """Restore one file if it is instrumented, then file it in ``outcome`` by what it is now."""
    target = checkout / PurePosixPath(file.path)
    places = replace.staging_places(checkout, file.path, file.staging)
    known = {file.sha256, file.instrumented_sha256}
    kept = [place.swap for place in places if _keeps_edit(place, target, known)]
    replaced = False
    digest = durable.digest_of(target)
    if digest == file.instrumented_sha256 != file.sha256 and not kept:
        replaced = _replace_with_original(target, places, file, original)
        digest = durable.digest_of(target)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        # Also when it was original before: a killed restore may have left that to the cache.
        durable.sync_directory(target.parent)
    for place in places:
        discard(place, known)
    if kept:
        names = ", ".join(map(str, kept))
        outcome.edited[file.path] = f"{_describe(target, digest)}; an earlier edit is in {names}"
    elif digest != file.sha256:
        outcome.edited[file.path] = _describe(target, digest)
    elif replaced:
        remove_stale_bytecode(target, file.instrumented_size)
        outcome.restored.append(file.path)
    else:
        outcome.already_original.append(file.path)


def _keeps_edit(place: replace.Staging, target: Path, known: set[str]) -> bool:
    """Put an edit that lies in a staging place back to where the user made it.

    It can be there because a crash came between displacing and putting back, or because a program
    wrote into the displaced original.

    Returns:
        Whether an edit is still in the staging place, since the target is an edit as well.
    """
    if not os.path.lexists(place.swap) or durable.digest_of(place.swap) in known:
        return False
    digest = durable.digest_of(target)
    return digest not in known or not replace.replace_verified(place.swap, target, digest)


def _replace_with_original(
    target: Path,
    places: tuple[replace.Staging, ...],
    file: OriginalFile,
    original: Callable[[OriginalFile], bytes],
) -> bool:
    """Put the original in place of the instrumented file.

    The displaced original itself is preferred to a copy: it needs no space on a disk that the
    capture may have filled, and it is the same inode with the same owner.

    Returns:
        False when the target turned out to be something else than the instrumented file.
    """
    displaced = [place for place in places if durable.digest_of(place.swap) == file.sha256]
    choices = displaced + [place for place in places if place not in displaced]
    for place in choices:
        try:
            if place in displaced:
                _renew_metadata(place.swap, target, file)
            else:
                content = original(file)
                if sha256(content) != file.sha256:
                    raise DamagedCopyError(
                        f"the copy of {file.path} does not have the digest in originals.json"
                    )
                replace.stage(place, content, like=target, mtime_ns=file.mtime_ns)
            return replace.replace_verified(place.swap, target, file.instrumented_sha256)
        except OSError as error:
            if not replace.is_other_file_system(error) or place is choices[-1]:
                raise
    return False


def _renew_metadata(swap: Path, target: Path, file: OriginalFile) -> None:
    """Undo a touch of the displaced original, and keep a ``chmod`` of the instrumented file."""
    status = os.stat(swap, follow_symlinks=False)
    mode = stat.S_IMODE(os.stat(target, follow_symlinks=False).st_mode)
    if mode != int(file.mode, 8):
        os.chmod(swap, mode)
    if status.st_mtime_ns != file.mtime_ns:
        os.utime(swap, ns=(status.st_atime_ns, file.mtime_ns), follow_symlinks=False)


def discard(place: replace.Staging, known: Collection[str]) -> None:
    """Delete what OpGuard itself put into a staging place, and nothing else."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place.new)
    if durable.digest_of(place.swap) in known:
        os.unlink(place.swap)


def _describe(target: Path, digest: str | None) -> str:
    """What is at ``target``, for a person."""
    if digest is not None:
        return f"content with sha256 {digest}"
    return "something that is not a regular file" if os.path.lexists(target) else "no file"
