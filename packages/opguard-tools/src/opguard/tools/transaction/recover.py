"""Restoring a checkout after an operation that could not do it itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opguard.tools import durable
from opguard.tools.transaction import layout, records
from opguard.tools.transaction.lock import CheckoutLock
from opguard.tools.transaction.restore import DamagedCopyError, restore_files
from opguard.tools.transaction.signals import SignalGuard


@dataclass(frozen=True, kw_only=True)
class RecoverReport:
    """What ``recover`` found and did.

    Attributes:
        checkout: Real path of the checkout.
        marker: The marker; None when there was none, and so nothing to do.
        originals: The ``originals.json`` that the marker names.
        restored: Paths that had the instrumented content and have the original one now.
        already_original: Paths that had the original content.
        edited: Path to what was found there instead; left alone.
        failed: Path to why it could not be restored.
        marker_removed: Whether the checkout can be used again.
    """

    checkout: Path
    marker: Path | None = None
    originals: Path | None = None
    restored: tuple[str, ...] = ()
    already_original: tuple[str, ...] = ()
    edited: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    marker_removed: bool = False

    @property
    def complete(self) -> bool:
        """Whether no file needs a person's attention."""
        return not self.edited and not self.failed

    def lines(self) -> list[str]:
        """The report for people, one line per fact."""
        if self.marker is None or self.originals is None:
            return [f"{self.checkout}: no marker, nothing to recover"]
        lines = [f"{self.checkout}: marker {self.marker}, originals {self.originals}"]
        lines += [f"restored: {path}" for path in self.restored]
        lines += [f"already original: {path}" for path in self.already_original]
        lines += [
            f"edited, left alone: {path} (is now {what})" for path, what in self.edited.items()
        ]
        lines += [f"not restored: {path} ({why})" for path, why in self.failed.items()]
        if self.marker_removed:
            lines.append("every file has its original content; the marker was removed")
        else:
            copies = self.originals.parent / layout.ORIGINALS_DIRECTORY
            lines.append(
                f"the marker stays: reconcile the files above with the originals in {copies}, "
                "then run recover again; to keep an edit as it is, remove the marker by hand"
            )
        return lines

    def document(self) -> dict[str, Any]:
        """The report as data that JSON can hold."""
        return {
            "checkout": str(self.checkout),
            "marker": None if self.marker is None else str(self.marker),
            "originals": None if self.originals is None else str(self.originals),
            "restored": list(self.restored),
            "already_original": list(self.already_original),
            "edited": dict(self.edited),
            "failed": dict(self.failed),
            "marker_removed": self.marker_removed,
        }


def recover(checkout: Path) -> RecoverReport:
    """Restore the files that an interrupted operation left instrumented.

    Only files whose content is exactly the instrumented one are restored, each from a copy whose
    digest is checked first; an edited file is left alone and listed. The marker is removed only
    when every file has its original content. Running it again, also after it was killed, continues;
    on a checkout without a marker it does nothing. Signals are delivered at the end.

    Args:
        checkout: The folder that holds the sources. It may have been moved since; the folder with
            the originals may not.

    Raises:
        CheckoutLockedError: An operation, perhaps the marker's own, is still running.
        CheckoutUnusableError: The checkout is not a writable directory.
        RecoveryError: The marker or ``originals.json`` is missing or damaged; nothing was changed.
        RestoreError: Every file is restored but the marker cannot be removed.

    Source:
        Protocol requirement D7.
    """
    checkout = layout.real_checkout(Path(checkout))
    if not layout.state_directory(checkout).is_dir():
        return RecoverReport(checkout=checkout)
    with SignalGuard(None), CheckoutLock(checkout, "recover"):
        return _recover_locked(checkout)


def _recover_locked(checkout: Path) -> RecoverReport:
    """Recover a checkout whose lock is held."""
    path = layout.marker_path(checkout)
    marker = records.load_marker(checkout)
    if marker is None:
        return RecoverReport(checkout=checkout)
    originals = records.load_originals(marker, path)
    copies = Path(marker.originals).parent

    def copy_of(file: records.OriginalFile) -> bytes:
        copy = records.original_copy(copies, file.path)
        found = durable.read_regular(copy)
        if found is None:
            raise DamagedCopyError(f"its copy {copy} is missing")
        return found[0]

    outcome = restore_files(checkout, originals.files, copy_of)
    if outcome.complete:
        records.remove_marker(checkout)
    return RecoverReport(
        checkout=checkout,
        marker=path,
        originals=Path(marker.originals),
        restored=tuple(outcome.restored),
        already_original=tuple(outcome.already_original),
        edited=outcome.edited,
        failed=outcome.failed,
        marker_removed=outcome.complete,
    )
