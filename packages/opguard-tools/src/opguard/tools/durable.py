"""File operations that survive a power cut: each returns once its effect is on stable storage.

The rule behind all of them: the data of a file is flushed before a name points to it, and the
directory that holds the name is flushed before anything relies on the name.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import stat
from pathlib import Path

from opguard.tools.digests import sha256

PRIVATE_MODE = 0o600
_RENAME_EXCHANGE = 2  # linux/fs.h
_AT_FDCWD = -100  # fcntl.h
# What file systems answer that cannot flush a directory (some FUSE and network file systems do so
# implicitly). Any other error is a real one.
_NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
# What file systems without hard links answer to link(2).
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def read_regular(path: Path) -> tuple[bytes, os.stat_result] | None:
    """Content and metadata of a regular file, taken through one descriptor.

    Returns:
        None when nothing is there, or something that is not a regular file (a symbolic link
        included: it is not followed).

    Raises:
        OSError: The file is there but cannot be read.
    """
    # O_NONBLOCK: opening a FIFO that somebody put there must not wait for a writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(), os.fstat(descriptor)
    finally:
        os.close(descriptor)


def digest_of(path: Path) -> str | None:
    """SHA-256 of a regular file; None when ``path`` is missing or something else."""
    found = read_regular(path)
    return None if found is None else sha256(found[0])


def sync_directory(path: Path) -> None:
    """Flush the names that a directory holds."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_SYNC:
            raise
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents, each name durable.

    Raises:
        OSError: It cannot be created. An existing directory is no error.
    """
    if path.is_dir():
        return
    make_directory(path.parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    sync_directory(path.parent)


def write_new(
    path: Path,
    data: bytes,
    *,
    mode: int = PRIVATE_MODE,
    like: Path | None = None,
    mtime_ns: int | None = None,
) -> None:
    """Write a file that must not exist yet, and flush its data (not the directory).

    Args:
        path: The new file.
        data: Its content.
        mode: Permission bits.
        like: A file whose mode, extended attributes and, where permitted, ownership are taken
            over instead of ``mode``.
        mtime_ns: Modification time, ns since 1970; None leaves it at now.

    Raises:
        OSError: It exists, or cannot be written. A file cut short may be left behind.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, PRIVATE_MODE)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if like is None:
            os.fchmod(descriptor, mode)
        else:
            _copy_permissions(like, descriptor)
        if mtime_ns is not None:
            # The access time has no meaning here; it is set because both are set together.
            os.utime(descriptor, ns=(mtime_ns, mtime_ns))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy_permissions(source: Path, descriptor: int) -> None:
    """Give an open file the ownership (where permitted), mode and attributes of ``source``."""
    status = os.stat(source, follow_symlinks=False)
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
        # Only root may give a file away; the owner may still pass it to a group of theirs.
        for owner, group in ((status.st_uid, status.st_gid), (-1, status.st_gid)):
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, owner, group)
                break
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))  # after fchown, which clears set-id bits
    if hasattr(os, "listxattr"):
        # Access lists and labels. Some namespaces are root's or the kernel's: what cannot be
        # copied stays at the directory's default.
        with contextlib.suppress(OSError):
            for name in os.listxattr(source, follow_symlinks=False):
                with contextlib.suppress(OSError):
                    value = os.getxattr(source, name, follow_symlinks=False)
                    os.setxattr(descriptor, name, value)


def write_durable(path: Path, data: bytes) -> None:
    """Write a new file that anyone may read, and flush it and its name.

    Raises:
        FileExistsError: The file is there already.
        OSError: It cannot be written.
    """
    write_new(path, data, mode=0o644)
    sync_directory(path.parent)


def publish(path: Path, data: bytes) -> None:
    """Create a small file whole or not at all, and make its name durable.

    Raises:
        FileExistsError: ``path`` exists.
        OSError: It cannot be written. Then ``path`` does not exist.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        write_new(temporary, data, mode=0o644)
        try:
            os.link(temporary, path)  # unlike rename, link never replaces a file
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
            os.rename(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    sync_directory(path.parent)


def exchange(first: Path, second: Path) -> None:
    """Swap two names in one atomic step: each name always points to one of the two files.

    Raises:
        OSError: ``EINVAL``, ``ENOSYS`` or ``EOPNOTSUPP`` where the system or the file system
            cannot swap; ``EXDEV`` across file systems; ``ENOENT`` when one is missing.
    """
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(second)) from None
    result = renameat2(
        _AT_FDCWD,
        os.fsencode(first),
        _AT_FDCWD,
        os.fsencode(second),
        ctypes.c_uint(_RENAME_EXCHANGE),
    )
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(second))


def remove(path: Path) -> None:
    """Unlink a file, if it is there, and make that durable."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
        sync_directory(path.parent)
