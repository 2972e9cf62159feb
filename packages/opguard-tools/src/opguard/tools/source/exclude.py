"""Which files may be instrumented, and how the others are named without this machine's paths."""

from __future__ import annotations

import os
import stat
import sysconfig
from itertools import pairwise
from pathlib import Path

_OUTSIDE_FOLDERS = frozenset({".git", "__pycache__", ".opguard"})
_INSTALLED_FOLDERS = frozenset({"site-packages", "dist-packages"})
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")


def exclusion(file: str, checkout: Path) -> str | None:
    """Why a file must stay as it is, or None when it may be instrumented.

    Args:
        file: Absolute path, symbolic links resolved, as recorded.
        checkout: Absolute path of the workload's folder, symbolic links resolved.

    Source:
        Protocol requirement C3.
    """
    if file.startswith("<"):
        return "generated code has no file"
    path = Path(file)
    if not path.is_relative_to(checkout):
        return _outside(path)
    inner = path.relative_to(checkout).parts[:-1]
    folder = checkout
    for name in inner:
        folder /= name
        if name in _OUTSIDE_FOLDERS:
            return f"inside {name}, which counts as outside the checkout"
        if name in _INSTALLED_FOLDERS:
            return "an installed package, which counts as outside the checkout"
        if any((folder / mark).exists() for mark in _ENVIRONMENT_MARKS):
            return f"inside the virtual environment {name}, which counts as outside the checkout"
    return _unusable_file(path)


def _outside(path: Path) -> str:
    if _INSTALLED_FOLDERS.intersection(path.parts):
        return "outside the checkout: an installed package"
    if _in_standard_library(path):
        return "outside the checkout: the standard library"
    return "outside the checkout"


def _unusable_file(path: Path) -> str | None:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return "not a regular file"
        with path.open("rb"):
            pass
    except FileNotFoundError:
        return "generated code: there is no such file"
    except OSError as error:
        return f"unreadable: {error.strerror}"
    if status.st_nlink > 1:
        return f"{status.st_nlink} hard links: replacing the file would part them"
    return None


def shown_path(file: str, checkout: Path) -> str:
    """A path for people and plans: relative to the checkout, or to where a library is installed.

    No result is absolute, so that plans of two machines can be compared.
    """
    if file.startswith("<"):
        return file
    path = Path(file)
    if path.is_relative_to(checkout):
        return path.relative_to(checkout).as_posix()
    for number, part in enumerate(path.parts):
        if part in _INSTALLED_FOLDERS:
            return Path(*path.parts[number:]).as_posix()
    library = _standard_library()
    if path.is_relative_to(library):
        return "lib/" + path.relative_to(library).as_posix()
    return Path(os.path.relpath(path, checkout)).as_posix()


def _standard_library() -> Path:
    return Path(os.path.realpath(sysconfig.get_paths()["stdlib"]))


def _in_standard_library(path: Path) -> bool:
    """Whether a path is in this interpreter's library or, by its shape, in another one's."""
    if path.is_relative_to(_standard_library()):
        return True
    parts = path.parts
    return any(
        folder in ("lib", "lib64") and child.startswith("python3")
        for folder, child in pairwise(parts)
    )
