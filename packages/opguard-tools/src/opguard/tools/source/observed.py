"""One checkout with what was observed in it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from opguard.tools.source import refusals
from opguard.tools.source.errors import UnusableSourceError
from opguard.tools.source.exclude import exclusion, shown_path
from opguard.tools.source.expression import Expression
from opguard.tools.source.observe import ObservedSpan, SpanFlag
from opguard.tools.source.plan import Excluded
from opguard.tools.source.positions import PositionMap
from opguard.tools.source.rewrite import ParsedSource


@dataclass(slots=True)
class SourceFile:
    """A file that may be instrumented: bytes as read, and what they hold."""

    path: str
    content: bytes
    parsed: ParsedSource


@dataclass(slots=True)
class Evidence:
    """What was seen at an expression.

    Attributes:
        operators: Operations by operator.
        count: All operations, those of frames below included.
        flags: Combined ``SpanFlag`` bits.
    """

    operators: Counter[str] = field(default_factory=Counter)
    count: int = 0
    flags: int = 0

    def add(self, span: ObservedSpan) -> None:
        """Add one observed position."""
        self.operators.update(span.operators)
        self.count += span.count
        self.flags |= span.flags


@dataclass(slots=True)
class ObservedCheckout:
    """Files of a checkout, and which of their expressions ran tensor operations.

    Attributes:
        root: The checkout, symbolic links resolved.
        files: Usable files by path in the checkout.
        evidence: What was seen, by file and expression that can be wrapped.
        excluded: What was seen and cannot be recorded, each with its reason.
        unplaced: Number of observed positions without an expression that can be wrapped.
    """

    root: Path
    files: dict[str, SourceFile] = field(default_factory=dict)
    evidence: dict[str, dict[Expression, Evidence]] = field(default_factory=dict)
    excluded: set[Excluded] = field(default_factory=set)
    unplaced: int = 0

    @classmethod
    def of(cls, checkout: Path, spans: Iterable[ObservedSpan]) -> ObservedCheckout:
        """Load the files that spans name, and place the spans in them."""
        observed = cls(Path(os.path.realpath(checkout)))
        by_file: dict[str, list[ObservedSpan]] = {}
        for span in spans:
            by_file.setdefault(span.file, []).append(span)
        for file in sorted(by_file):
            path = shown_path(file, observed.root)
            reason = observed.load(path, file)
            if reason is not None:
                observed.excluded.add(Excluded(path=path, reason=reason))
                observed.unplaced += len(by_file[file])
            else:
                observed._place(observed.files[path], by_file[file])
        return observed

    def load(self, path: str, file: str | None = None) -> str | None:
        """Read and parse a file, once; return why it cannot be used, or None.

        Args:
            path: Path as plans name it.
            file: Absolute path; the one in the checkout by default.
        """
        file = file or os.path.realpath(self.root / path)
        reason = exclusion(file, self.root)
        if reason is not None or path in self.files:
            return reason
        try:
            content = Path(file).read_bytes()
            self.files[path] = SourceFile(path, content, ParsedSource.of(content))
        except OSError as error:
            return f"unreadable: {error.strerror}"
        except UnusableSourceError as error:
            return str(error.details["reason"])
        return None

    def _place(self, file: SourceFile, spans: list[ObservedSpan]) -> None:
        """Map positions of one file to its expressions."""
        index = file.parsed.index
        positions = PositionMap(index.expressions, file.parsed.source.line_count)
        evidence = self.evidence.setdefault(file.path, {})
        for span in spans:
            expressions, reason = positions.find(span)
            for expression in expressions:
                evidence.setdefault(expression, Evidence()).add(span)
            if not expressions:
                self.unplaced += 1
                if span.flags & SpanFlag.INNERMOST:
                    reason = f"line {span.line} ({_names(span)}): {reason}"
                    self.excluded.add(Excluded(path=file.path, reason=reason))
        for definition, compiler in index.compiled.items():
            reason = refusals.compiled(definition, compiler)
            self.excluded.add(Excluded(path=file.path, reason=reason))


def _names(span: ObservedSpan) -> str:
    return ", ".join(sorted(span.operators)[:3]) or span.qualname
