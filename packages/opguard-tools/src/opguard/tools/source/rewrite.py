"""Instrumenting one source file: each selected expression gets its wrapper, nothing else changes.

A call ``f(a)`` becomes ``__opguard_site__(17, f)(a)``: the wrapper stands around the callee
alone, so the order of evaluation, ``await``, ``yield`` and star-arguments stay as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opguard.tools.source.edits import Edits
from opguard.tools.source.errors import RewriteError, UnusableSourceError
from opguard.tools.source.expression import Expression
from opguard.tools.source.expressions import ExpressionIndex
from opguard.tools.source.plan import Site
from opguard.tools.source.spelling import MARK, MODULE, Spelling, import_place, names_in
from opguard.tools.source.text import SourceText, Span, collection_paused, parse
from opguard.tools.source.unchanged import without_unchanged
from opguard.tools.source.verify import Comparison


@dataclass(slots=True)
class ParsedSource:
    """A source file with its tree and the expressions in it."""

    source: SourceText
    tree: ast.Module
    index: ExpressionIndex

    @classmethod
    def of(cls, content: bytes, sites: Sequence[Site] | None = None) -> ParsedSource:
        """Decode, parse and index a file.

        Args:
            content: The file's bytes.
            sites: Only these expressions are indexed; by default all are.

        Raises:
            UnusableSourceError: It cannot be decoded or parsed, or is instrumented already.
        """
        source = SourceText.decode(content)
        if MARK in source.text or MODULE in source.text:
            raise UnusableSourceError(
                "The source holds OpGuard's own names: it is instrumented already. "
                "Restore the original first.",
                reason="instrumented already",
            )
        try:
            with collection_paused():
                tree = parse(source.text)
                spans = None if sites is None else frozenset(site.span for site in sites)
                return cls(source, tree, ExpressionIndex(source, tree, spans))
        except RecursionError as error:
            raise UnusableSourceError(
                "The source is nested too deeply to be analysed. Leave the file out.",
                reason="nested too deeply to be analysed",
            ) from error


def instrument(source: bytes, sites: Sequence[Site]) -> bytes:
    """Wrap the given callsites of one file.

    Encoding, byte order mark, line ends, comments, formatting and line numbers stay. Before it is
    returned, it is proved that the result equals the original once its wrappers are taken off.

    Args:
        source: The file's bytes.
        sites: Callsites of this file.

    Raises:
        RewriteError: A site is not an expression of this source, or wrapping it would change
            what the file does. ``details`` name the file, and the site where one is to blame.
        UnusableSourceError: The file cannot be decoded or parsed, or is instrumented already.
    """
    if not sites:
        return source
    with collection_paused():
        parsed = ParsedSource.of(source, sites)
        text = rewrite(parsed, sites)
        verify(parsed, text, sites)
    return parsed.source.encode(text)


def rewrite(parsed: ParsedSource, sites: Sequence[Site]) -> str:
    """Text of the instrumented file, not yet verified.

    Raises:
        RewriteError: As ``instrument``.
    """
    place = import_place(parsed.source, parsed.tree)
    edits = Edits(parsed.source, Spelling(imported=place is not None))
    expressions: dict[tuple[str, Span], Expression] = {
        (found.kind, found.span): found for found in parsed.index.expressions
    }
    for site in sites:
        expression = expressions.get((site.kind, site.span))
        if expression is None:
            raise _error(site, f"no {site.kind} stands at column {site.col}: the file changed")
        if expression.refusal is not None:
            raise _error(site, expression.refusal)
        edits.wrap(expression, site)
    if place is not None:
        statement = place.before + edits.spelling.import_statement() + place.after
        edits.insert(place.offset, statement, first=place.before == "")
    return edits.apply()


def verify(parsed: ParsedSource, text: str, sites: Sequence[Site]) -> None:
    """Prove that an instrumented text is the original plus wrappers.

    Raises:
        RewriteError: It is not, does not parse, or cannot be encoded.
    """
    file = sites[0].file
    try:
        decoded = SourceText.decode(parsed.source.encode(text))
        if decoded.text != text:
            raise _file_error(file, "the instrumented text does not survive its encoding")
    except (UnicodeEncodeError, UnusableSourceError) as error:
        raise _file_error(file, f"the instrumented text cannot be encoded: {error}") from error
    if decoded.line_count != parsed.source.line_count:
        raise _file_error(file, "the number of lines changed")
    shortened = without_unchanged(parsed.tree, parsed.source.lines(), decoded.lines())
    by_id = {site.id: site for site in sites}
    comparison = Comparison(by_id, shortened.stand_ins, names_in(decoded.text))
    try:
        difference = comparison.run(parsed.tree, parse(shortened.text))
    except UnusableSourceError as error:
        raise _file_error(file, f"the instrumented text does not parse: {error}") from error
    if difference is not None:
        site = next((site for site in sites if site.id == difference.site), None)
        if site is not None:
            raise _error(site, f"wrapping it changes the statement: {difference.what}")
        raise _file_error(file, f"line {difference.line} changed: {difference.what}")


def wrappable(parsed: ParsedSource, sites: Sequence[Site]) -> tuple[list[Site], dict[int, str]]:
    """Sites of one file that can be wrapped together, and why each of the others cannot.

    Almost always all can. A site that a form does not fit after all is found by halving.
    """
    dropped: dict[int, str] = {}

    def fails(chosen: Sequence[Site]) -> RewriteError | None:
        try:
            verify(parsed, rewrite(parsed, chosen), chosen)
        except RewriteError as error:
            return error
        return None

    with collection_paused():
        kept = _grow([], list(sites), fails, dropped)
    return kept, dropped


def _grow(
    kept: list[Site],
    more: list[Site],
    fails: Callable[[Sequence[Site]], RewriteError | None],
    dropped: dict[int, str],
) -> list[Site]:
    """Add as many of ``more`` to ``kept`` as can be wrapped together."""
    error = fails([*kept, *more]) if more else None
    if error is None:
        return [*kept, *more]
    if len(more) == 1:
        dropped[more[0].id] = str(error.details.get("reason", error))
        return kept
    half = len(more) // 2
    return _grow(_grow(kept, more[:half], fails, dropped), more[half:], fails, dropped)


def _error(site: Site, reason: str) -> RewriteError:
    return RewriteError(
        f"{site.file}:{site.line}: callsite {site.id} ({site.callee}) cannot be wrapped: "
        f"{reason}. Prepare the plan again.",
        file=site.file,
        site=site.id,
        reason=reason,
    )


def _file_error(file: str, reason: str) -> RewriteError:
    return RewriteError(
        f"{file} cannot be instrumented: {reason}. Leave the file out and report it.",
        file=file,
        site=None,
        reason=reason,
    )
