"""Where code lies: in the standard library, in an installed package, and at which position."""

from __future__ import annotations

import functools
import itertools
import os
import site
import sysconfig
from types import CodeType

Position = tuple[int, int, int, int]
"""``(line, end_line, col, end_col)``; lines count from 1, columns from 0 in UTF-8 bytes. -1 where
the interpreter does not know."""

_UNKNOWN: Position = (-1, -1, -1, -1)


@functools.cache
def standard_library() -> tuple[str, ...]:
    """Folders of the standard library, symbolic links resolved, each with a closing separator."""
    return _folders(sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))


@functools.cache
def package_folders() -> tuple[str, ...]:
    """Where packages are installed: of this environment, of the user, of the distribution.

    Symbolic links are resolved; each has a closing separator.
    """
    installed = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return _folders(*installed, *site.getsitepackages(), site.getusersitepackages())


def is_installed(path: str) -> bool:
    """Whether a resolved path lies in the standard library or where packages are installed."""
    return path.startswith((*standard_library(), *package_folders()))


def below_package_folder(path: str) -> str | None:
    """The part of a path below the folder of any installation; ``None`` outside of them."""
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in path:
            return path.rpartition(folder)[2]
    return None


def position_of(code: CodeType, lasti: int) -> Position:
    """Position of the instruction at byte ``lasti`` of a code object."""
    found = next(itertools.islice(code.co_positions(), lasti // 2, None), None)
    if found is None:
        return _UNKNOWN
    line, end_line, col, end_col = (-1 if part is None else part for part in found)
    return line, end_line, col, end_col


def _folders(*paths: str) -> tuple[str, ...]:
    return tuple(sorted({os.path.realpath(path) + os.sep for path in paths}))
