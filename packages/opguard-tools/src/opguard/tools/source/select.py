"""From observed positions to the callsites that will be recorded."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from opguard.tools.digests import sha256
from opguard.tools.source.errors import NothingToInstrumentError
from opguard.tools.source.expression import Expression
from opguard.tools.source.observe import ObservedSpan, SpanFlag
from opguard.tools.source.observed import Evidence, ObservedCheckout, SourceFile
from opguard.tools.source.operators import BINARY, COMPARE, UNARY, inplace
from opguard.tools.source.plan import Depth, DepthChoice, Excluded, PlanFile, Site
from opguard.tools.source.rewrite import wrappable
from opguard.tools.source.text import one_line
from opguard.tools.source.union import additions, align_checkouts


@dataclass(frozen=True, slots=True)
class Peer:
    """The version that this one will be compared with.

    Attributes:
        checkout: Its folder.
        spans: What was observed in it.
    """

    checkout: Path
    spans: Sequence[ObservedSpan]


@dataclass(frozen=True, slots=True)
class ObservedSummary:
    """What discovery saw, in numbers.

    Attributes:
        files: Files with observed positions, those outside the checkout included.
        positions: Observed positions.
        operations: Tensor operations, each at its innermost position.
        callsites: Expressions that will be recorded because tensor operations were seen there.
        added: Expressions that will be recorded because of the other version.
        unplaced: Positions that no recorded expression stands for.
    """

    files: int
    positions: int
    operations: int
    callsites: int
    added: int
    unplaced: int


@dataclass(frozen=True, slots=True)
class Selection:
    """What will be instrumented.

    Attributes:
        files: Files with at least one callsite, by path.
        sites: Callsites by file and position, numbered from 1.
        excluded: What was observed and is left out, each with its reason.
        observed_summary: What was observed, in numbers.
    """

    files: tuple[PlanFile, ...]
    sites: tuple[Site, ...]
    excluded: tuple[Excluded, ...]
    observed_summary: ObservedSummary


def select_sites(
    checkout: Path,
    spans: Sequence[ObservedSpan],
    peer: Peer | None = None,
    depth: DepthChoice = "auto",
    takes: Callable[[str, str, str], bool] | None = None,
) -> Selection:
    """Choose the callsites of a checkout.

    Every file is instrumented once for trial, so that what the plan holds can be carried out.
    The same arguments give the same result.

    Args:
        checkout: The workload's folder.
        spans: What was observed in it.
        peer: The other version; callsites observed there in statements that both have, and all
            calls in statements that only one has, are recorded too.
        depth: ``call`` or ``aten`` for every callsite; ``auto`` takes ``aten`` where the operators
            of a call run in lines of a library.
        takes: Whether the user wants a callsite, by file, function and callee; all by default.

    Raises:
        NothingToInstrumentError: No observed operation can be recorded.

    Source:
        Protocol requirements C2-C5.
    """
    own = ObservedCheckout.of(checkout, spans)
    chosen = {path: dict(evidence) for path, evidence in own.evidence.items()}
    added: Mapping[str, Mapping[Expression, Evidence]] = {}
    if peer is not None:
        other = ObservedCheckout.of(peer.checkout, peer.spans)
        added = additions(own, other, align_checkouts(own, other))
    files: list[PlanFile] = []
    sites: list[Site] = []
    excluded = set(own.excluded)
    for path in sorted(chosen.keys() | added.keys()):
        file = own.files[path]
        seen = chosen.get(path, {})
        proposed = _sites(file, seen, added.get(path, {}), len(sites) + 1, depth)
        if takes is not None:
            wanted = [site for site in proposed if takes(path, site.qualname, site.callee)]
            if len(wanted) < len(proposed):
                reason = f"{len(proposed) - len(wanted)} callsites are outside the selection"
                excluded.add(Excluded(path=path, reason=reason))
            if not wanted:
                continue
            proposed = wanted
        kept, dropped = wrappable(file.parsed, proposed)
        for site in proposed:
            if site.id in dropped:
                reason = f"line {site.line}, {site.callee}: {dropped[site.id]}"
                excluded.add(Excluded(path=path, reason=reason))
        if kept:
            content = file.content
            files.append(PlanFile(path=path, size=len(content), sha256=sha256(content)))
            start = len(sites) + 1
            sites += [site.model_copy(update={"id": start + n}) for n, site in enumerate(kept)]
        else:
            reason = "no observed position belongs to an expression that can be recorded"
            excluded.add(Excluded(path=path, reason=reason))
    summary = _summary(spans, sites, own.unplaced)
    ordered = tuple(sorted(excluded, key=lambda entry: (entry.path, entry.reason)))
    if not sites:
        raise _nothing(summary, ordered)
    return Selection(tuple(files), tuple(sites), ordered, summary)


def _sites(
    file: SourceFile,
    seen: Mapping[Expression, Evidence],
    added: Mapping[Expression, Evidence],
    first_id: int,
    depth: DepthChoice,
) -> list[Site]:
    """Callsites of one file in source order, enclosing before enclosed."""
    expressions = sorted(
        {*seen, *added}, key=lambda found: (found.statement, found.ordinal, found.kind)
    )
    sites = []
    for number, found in enumerate(expressions, first_id):
        evidence, other = seen.get(found), added.get(found)
        operators = {*(evidence.operators if evidence else ()), *(other.operators if other else ())}
        flags = (evidence.flags if evidence else 0) | (other.flags if other else 0)
        line, end_line, col, end_col = found.span
        sites.append(
            Site(
                id=number,
                file=file.path,
                line=line,
                end_line=end_line,
                col=col,
                end_col=end_col,
                qualname=found.qualname,
                kind=found.kind,
                callee=callee_text(found),
                text=_one_line(file, found),
                statement=found.statement,
                ordinal=found.ordinal,
                depth=_depth(depth, flags),
                observed=evidence is not None,
                operators=tuple(sorted(operators)),
                count=evidence.count if evidence else 0,
            )
        )
    return sites


def _depth(choice: DepthChoice, flags: int) -> Depth:
    if choice == "auto":
        return "aten" if flags & SpanFlag.OPAQUE else "call"
    return choice


def callee_text(expression: Expression) -> str:
    """What an expression calls, in normalised form."""
    node = expression.node
    if expression.kind == "iterate":
        return "iter"
    if isinstance(node, ast.Call):
        return ast.unparse(node.func)
    if isinstance(node, ast.BinOp):
        return BINARY[type(node.op)][0]
    if isinstance(node, ast.Compare):
        return COMPARE[type(node.ops[0])][0]
    if isinstance(node, ast.UnaryOp):
        return UNARY[type(node.op)][0]
    if isinstance(node, ast.AugAssign):
        return inplace(type(node.op))[0]
    if isinstance(node, ast.Attribute):
        return "." + node.attr
    return {"Store": "[]=", "Del": "del []"}.get(type(getattr(node, "ctx", None)).__name__, "[]")


def _one_line(file: SourceFile, expression: Expression) -> str:
    source = file.parsed.source
    start, end = source.span(expression.node)
    return one_line(source.text[start:end])


def _summary(
    spans: Sequence[ObservedSpan], sites: Iterable[Site], unplaced: int
) -> ObservedSummary:
    observed = [site.observed for site in sites]
    return ObservedSummary(
        files=len({span.file for span in spans}),
        positions=len(spans),
        operations=sum(sum(span.operators.values()) for span in spans),
        callsites=observed.count(True),
        added=observed.count(False),
        unplaced=unplaced,
    )


def _nothing(summary: ObservedSummary, excluded: Sequence[Excluded]) -> NothingToInstrumentError:
    reasons = "; ".join(f"{entry.path}: {entry.reason}" for entry in excluded)
    return NothingToInstrumentError(
        f"There is nothing to instrument. Discovery saw {summary.operations} tensor operations at "
        f"{summary.positions} positions in {summary.files} files"
        + (f", all excluded: {reasons}" if reasons else "")
        + ". Check that the workload's cwd holds the code that computes, and that the script "
        "reached it.",
        observed=asdict(summary),
        excluded=[entry.model_dump() for entry in excluded],
    )
