"""The one exception of this package that is not a builtin."""

from os import PathLike, fspath


class CorruptBatchError(ValueError):
    """A file of a capture is damaged, missing, or belongs to another capture.

    Attributes:
        path: The file, or the rank's directory when no file is to blame.
        sequence: The batch's number in its rank; ``None`` for a receipt or a directory.
        reason: What is wrong, without the path.
    """

    def __init__(self, path: str | PathLike[str], sequence: int | None, reason: str) -> None:
        """Build the message from the attributes; all three are kept when pickled."""
        super().__init__(path, sequence, reason)
        self.path = fspath(path)
        self.sequence = sequence
        self.reason = reason

    def __str__(self) -> str:
        """Say what is wrong, where, and what to do."""
        return f"{self.path}: {self.reason}; the capture is incomplete, record it again"


# Shown in tracebacks and pickles under the name that users import.
CorruptBatchError.__module__ = "xorsig"
