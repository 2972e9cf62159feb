"""Sites for tests of rewriting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opguard.tools.source.plan import Site
from opguard.tools.source.rewrite import ParsedSource


def all_sites(
    content: bytes, *, file: str = "m.py", only: Callable[[Any], bool] = lambda found: True
) -> list[Site]:
    """A site for every expression of a source that can be wrapped."""
    found = [
        expression
        for expression in ParsedSource.of(content).index.expressions
        if expression.refusal is None and only(expression)
    ]
    return [
        Site.model_construct(  # positions come from the parser, and there are many
            id=number,
            file=file,
            line=expression.span[0],
            end_line=expression.span[1],
            col=expression.span[2],
            end_col=expression.span[3],
            qualname=expression.qualname,
            kind=expression.kind,
            callee="callee",
            text="text",
            statement=expression.statement,
            ordinal=expression.ordinal,
            depth="call",
            observed=True,
            operators=(),
            count=0,
        )
        for number, expression in enumerate(found, 1)
    ]
