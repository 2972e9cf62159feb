"""Virtual environments with versions of a small library, for tests and the guide's commands."""

from __future__ import annotations

import shutil
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

from opguard_e2e import REPOSITORY

LIBRARIES = REPOSITORY / "tests" / "e2e" / "libraries"
PACKAGE = "small_trainer"


def make_environment(
    folder: Path, version: str, edits: Mapping[str, tuple[str, str]] | None = None
) -> Path:
    """Make an environment that sees everything of this one, and the library besides.

    Args:
        folder: Folder to make.
        version: ``old`` or ``new``.
        edits: By file of the package, a text and what takes its place.

    Returns:
        The package's folder.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    packages = next(folder.glob("lib/python*/site-packages"))
    here = sysconfig.get_path("purelib")
    (packages / "this_environment.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    package = packages / PACKAGE
    shutil.copytree(LIBRARIES / version / PACKAGE, package)
    for name, (old, new) in (edits or {}).items():
        path = package / name
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))
    return package


def prepare_upgrade(folder: Path) -> None:
    """``old-env``, ``new-env`` and ``checkout``, as the guide on upgraded libraries has them."""
    make_environment(folder / "old-env", "old")
    make_environment(folder / "new-env", "new")
    shutil.copytree(LIBRARIES / "checkout", folder / "checkout")
