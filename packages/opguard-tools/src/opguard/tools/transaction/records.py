"""What a transaction writes down before it changes a source: the originals and the marker."""

from __future__ import annotations

import json
import shlex
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from opguard.tools import durable
from opguard.tools.digests import sha256
from opguard.tools.transaction import layout
from opguard.tools.transaction.errors import CheckoutMarkedError, RecoveryError, RestoreError

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
RelativePath = Annotated[str, StringConstraints(min_length=1)]


class _Record(BaseModel):
    """Strict and closed: a damaged record is refused, never half understood."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class OriginalFile(_Record):
    """One source file before and after instrumentation."""

    path: RelativePath
    """Relative to the checkout, links resolved, ``/`` between parts."""
    size: int = Field(ge=0)
    """Bytes of the original."""
    mode: Annotated[str, StringConstraints(pattern=r"^[0-7]{4}$")]
    """Permission bits in octal."""
    mtime_ns: int
    """Modification time of the original, ns since 1970."""
    sha256: Sha256
    """Digest of the original."""
    instrumented_size: int = Field(ge=0)
    """Bytes of the instrumented file."""
    instrumented_sha256: Sha256
    """Digest of the instrumented file."""
    staging: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}-[0-9]+$")]
    """Stem of the names of this file's staging places (see ``replace.Staging``)."""


class Originals(_Record):
    """``OUTPUT-instrument/originals.json``."""

    originals_version: Literal[1] = 1
    operation: str
    """The operation that instrumented the files."""
    checkout: str
    """Absolute path at that time; recovery goes by the checkout that it is given."""
    files: tuple[OriginalFile, ...] = Field(min_length=1)

    def text(self) -> bytes:
        """The file's content."""
        return _text(self)


class Marker(_Record):
    """``CHECKOUT/.opguard/harness-active.json``."""

    marker_version: Literal[1] = 1
    operation: str
    pid: int
    host: str
    since: str
    """Start of the transaction, ISO 8601, UTC."""
    originals: str
    """Absolute path of ``originals.json``."""
    originals_sha256: Sha256
    """Digest of that file, so that recovery can tell a damaged one."""

    def text(self) -> bytes:
        """The file's content."""
        return _text(self)


def original_copy(instrument_directory: Path, path: str) -> Path:
    """Where the durable copy of an original is."""
    return instrument_directory / layout.ORIGINALS_DIRECTORY / PurePosixPath(path)


def instrumented_copy(instrument_directory: Path, path: str) -> Path:
    """Where the copy of an instrumented file is: the common base for merging an edit by hand."""
    return instrument_directory / layout.INSTRUMENTED_DIRECTORY / PurePosixPath(path)


def load_marker(checkout: Path) -> Marker | None:
    """Read the marker of a checkout (a real path).

    Returns:
        None when there is none.

    Raises:
        RecoveryError: It is there but unreadable or damaged.
    """
    path = layout.marker_path(checkout)
    try:
        found = durable.read_regular(path)
        if found is None:
            if not path.is_symlink() and not path.exists():
                return None
            raise ValueError("not a regular file")
        return Marker.model_validate_json(found[0])
    except (OSError, ValueError) as error:
        raise RecoveryError(
            f"marker {path} cannot be read ({_reason(error)}): look for originals.json in the "
            "-instrument folder next to the output of the last trace of this checkout, compare "
            "the files that it lists with the copies beside it, then remove the marker by hand",
            marker=str(path),
        ) from error


def load_originals(marker: Marker, marker_path: Path) -> Originals:
    """Read the record of the originals that a marker points to.

    Raises:
        RecoveryError: It is missing, damaged, or not the one that the marker was written for.
    """
    path = Path(marker.originals)
    try:
        found = durable.read_regular(path)
        if found is None:
            raise ValueError("no such file")
        if sha256(found[0]) != marker.originals_sha256:
            raise ValueError("its digest is not the one in the marker")
        return Originals.model_validate_json(found[0])
    except (OSError, ValueError) as error:
        raise RecoveryError(
            f"record of the originals {path}, named by {marker_path}, cannot be used "
            f"({_reason(error)}): put it back from a backup, or restore the sources from version "
            "control and remove the marker by hand",
            marker=str(marker_path),
            originals=str(path),
        ) from error


def refuse_marked(checkout: Path) -> None:
    """Fail if an earlier operation left its marker in the checkout.

    Raises:
        CheckoutMarkedError: There is a marker, readable or not.

    Source:
        Protocol requirements D2, D6.
    """
    checkout = layout.real_checkout(Path(checkout))
    path = layout.marker_path(checkout)
    try:
        marker = load_marker(checkout)
    except RecoveryError as error:
        raise CheckoutMarkedError(
            f"checkout {checkout} has a marker of an unfinished operation: {error}",
            checkout=str(checkout),
            marker=str(path),
        ) from error
    if marker is None:
        return
    raise CheckoutMarkedError(
        f"checkout {checkout} may hold instrumented or edited sources: marker {path} was left by "
        f"operation {marker.operation} (process {marker.pid} on host {marker.host}, since "
        f"{marker.since}); the originals are listed in {marker.originals}. Run "
        f"`opguard-tools recover {shlex.quote(str(checkout))}`, then try again",
        checkout=str(checkout),
        marker=str(path),
        operation=marker.operation,
        pid=marker.pid,
        host=marker.host,
        since=marker.since,
        originals=marker.originals,
    )


def remove_marker(checkout: Path) -> None:
    """Remove the marker of a checkout whose files are all original, durably.

    Raises:
        RestoreError: The system refused it.
    """
    path = layout.marker_path(checkout)
    try:
        for torn in path.parent.glob(f"{path.name}.*.tmp"):  # of operations killed while marking
            torn.unlink()
        durable.remove(path)
    except OSError as error:
        raise RestoreError(
            f"every source of {checkout} has its original content, but marker {path} could not be "
            f"removed ({error.strerror}): make {path.parent} writable, then run `opguard-tools "
            f"recover {shlex.quote(str(checkout))}`",
            checkout=str(checkout),
            marker=str(path),
        ) from error


def _text(record: BaseModel) -> bytes:
    """Indented JSON: people read these files when things have gone wrong."""
    return json.dumps(record.model_dump(mode="json"), indent=2).encode() + b"\n"


def _reason(error: Exception) -> str:
    """One line about what is wrong with a record."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "content"
        return f"{place}: {first['msg']}"
    return str(error)
