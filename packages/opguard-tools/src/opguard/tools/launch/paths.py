"""The directories of an operation: fresh, and apart from each other.

Every comparison is made on resolved paths, so that a symbolic link cannot bring two directories
together that must stay apart.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from opguard.tools.formats import CAPTURE_NAME, LOG_NAME
from opguard.tools.protocol.errors import (
    OutputExistsError,
    PathConflictError,
    WorkloadNotFoundError,
)


@dataclass(frozen=True)
class OperationPaths:
    """Resolved directories of one operation.

    Attributes:
        output: The operation's output directory; does not exist yet.
        checkout: The workload's working directory, if the action has a workload.
        local_root: Staging on the node's own disk, if the action runs a workload.
    """

    output: Path
    checkout: Path | None = None
    local_root: Path | None = None

    @property
    def instrument(self) -> Path:
        """Where copies of the original sources are kept during a trace."""
        return instrument_directory(self.output)

    @property
    def capture(self) -> Path:
        """Where ranks publish batches and receipts."""
        return self.output / CAPTURE_NAME

    @property
    def log(self) -> Path:
        """What the workload prints."""
        return self.output / LOG_NAME


def instrument_directory(output: Path) -> Path:
    """``OUTPUT-instrument`` next to the output directory."""
    return output.with_name(output.name + "-instrument")


def resolve(path: str) -> Path:
    """An absolute path with symbolic links resolved; the path need not exist."""
    return Path(os.path.realpath(path))


def is_within(path: Path, folder: Path) -> bool:
    """Whether a resolved path is a folder or lies inside it."""
    return path == folder or folder in path.parents


def check_paths(
    output: str, *, checkout: str | None = None, local_root: str | None = None
) -> OperationPaths:
    """Resolve an operation's directories and check their rules; changes nothing on disk.

    Args:
        output: The request's ``output``.
        checkout: The workload's ``cwd``.
        local_root: The request's ``local_root``.

    Raises:
        OutputExistsError: ``output`` or ``OUTPUT-instrument`` is there already.
        WorkloadNotFoundError: The checkout is not a directory.
        PathConflictError: Two directories overlap that must be apart.

    Source:
        Protocol requirements B1, B7, B12.
    """
    given = Path(os.path.abspath(output))
    for path in (given, instrument_directory(given)):
        if os.path.lexists(path):
            raise OutputExistsError(
                f"output: {path} exists already; choose a new output directory, a retry takes "
                "one too",
                path=path,
            )
    paths = OperationPaths(
        output=resolve(output),
        checkout=_existing_checkout(checkout) if checkout is not None else None,
        local_root=resolve(local_root) if local_root is not None else None,
    )
    _check_apart(paths)
    return paths


def _existing_checkout(cwd: str) -> Path:
    checkout = resolve(cwd)
    if not checkout.is_dir():
        raise WorkloadNotFoundError(
            f"workload.cwd: {checkout} is not a directory; name the checkout to run", path=checkout
        )
    return checkout


def _check_apart(paths: OperationPaths) -> None:
    output, local_root, checkout = paths.output, paths.local_root, paths.checkout
    if checkout is not None and is_within(output, checkout):
        raise PathConflictError(
            f"output: {output} is inside the checkout {checkout}; choose a directory outside it",
            field="output",
        )
    if local_root is None:
        return
    if checkout is not None and is_within(local_root, checkout):
        raise PathConflictError(
            f"local_root: {local_root} is inside the checkout {checkout}; choose a directory "
            "outside it",
            field="local_root",
        )
    for folder in (output, paths.instrument):
        if is_within(local_root, folder):
            raise PathConflictError(
                f"local_root: {local_root} is inside {folder}; it must be a directory of its own "
                "on the node's local disk",
                field="local_root",
            )
    if is_within(output, local_root):
        raise PathConflictError(
            f"output: {output} is inside local_root {local_root}; they must be apart, choose "
            "another local_root",
            field="output",
        )


def make_directories(paths: OperationPaths) -> None:
    """Make the output directory and ``local_root``, and their parents where missing.

    Raises:
        OutputExistsError: The output directory appeared since it was checked.
        PathConflictError: A directory cannot be made here.
    """
    if paths.local_root is not None:
        _make("local_root", paths.local_root)
    _make("output", paths.output.parent)
    try:
        paths.output.mkdir()
    except FileExistsError as error:
        raise OutputExistsError(
            f"output: {paths.output} exists already; choose a new output directory",
            path=paths.output,
        ) from error
    except OSError as error:
        raise _cannot_make("output", paths.output, error) from error


def _make(field: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_make(field, folder, error) from error


def _cannot_make(field: str, folder: Path, error: OSError) -> PathConflictError:
    return PathConflictError(
        f"{field}: cannot make {folder}: {error.strerror}; choose a directory that this user can "
        "write to",
        field=field,
    )
