"""Names inside a checkout's ``.opguard`` folder and inside ``OUTPUT-instrument``."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from opguard.tools import durable
from opguard.tools.transaction.errors import CheckoutUnusableError

STATE_DIRECTORY = ".opguard"
LOCK_NAME = "lock"
MARKER_NAME = "harness-active.json"
STAGING_NAME = "staging"
ORIGINALS_NAME = "originals.json"
ORIGINALS_DIRECTORY = "originals"
INSTRUMENTED_DIRECTORY = "instrumented"


def state_directory(checkout: Path) -> Path:
    """Where OpGuard keeps its state in a checkout."""
    return checkout / STATE_DIRECTORY


def marker_path(checkout: Path) -> Path:
    """The file that says that sources of the checkout are instrumented."""
    return state_directory(checkout) / MARKER_NAME


def real_checkout(checkout: Path) -> Path:
    """The checkout's absolute path without symbolic links.

    Raises:
        CheckoutUnusableError: It is not a directory.
    """
    try:
        real = checkout.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        raise CheckoutUnusableError(
            f"checkout {checkout} cannot be reached ({error}): check the path",
            checkout=str(checkout),
        ) from error
    if not real.is_dir():
        raise CheckoutUnusableError(
            f"checkout {checkout} is not a directory: pass the folder that holds the sources",
            checkout=str(checkout),
        )
    return real


def ensure_state_directory(checkout: Path) -> Path:
    """Create ``.opguard`` with a ``.gitignore`` that hides it from git, itself included.

    It stays after the operation: unlinking a lock file that others may be waiting on would let two
    operations hold "the" lock at once, and git does not show the folder.

    Raises:
        CheckoutUnusableError: The checkout is not writable, or ``.opguard`` is something else.

    Source:
        Protocol requirement D8.
    """
    directory = state_directory(checkout)
    try:
        durable.make_directory(directory)
        if not stat.S_ISDIR(os.lstat(directory).st_mode):
            raise CheckoutUnusableError(
                f"{directory} is not a folder of the checkout: OpGuard keeps its lock and marker "
                "there; move the file or link of that name away",
                checkout=str(checkout),
            )
        ignore = directory / ".gitignore"
        if not os.path.lexists(ignore) or os.stat(ignore).st_size == 0:
            # Empty: its writer was killed. Not with ``publish``, whose temporary file git shows.
            ignore.write_bytes(b"*\n")
    except OSError as error:
        raise CheckoutUnusableError(
            f"checkout {checkout} cannot be used: {directory}: {error.strerror}; OpGuard writes "
            "its lock there, so make the checkout writable or use a writable copy",
            checkout=str(checkout),
        ) from error
    return directory
