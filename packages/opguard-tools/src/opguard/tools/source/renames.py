"""Consistent renamings of variables between two versions of a function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from opguard.tools.source.matching import Matches
from opguard.tools.source.scopes import GLOBAL, Scope, Statement
from opguard.tools.source.sequences import align

Renames = Mapping[str, str]
Key = tuple[str, tuple[str, ...]]
"""A statement up to renaming: equal keys mean the same statement in both versions."""


def definition_renames(
    matches: Matches, baseline: frozenset[str], candidate: frozenset[str]
) -> dict[str, str]:
    """New names of definitions and modules, where old and new name exclude each other.

    Args:
        matches: Counterparts.
        baseline: All names of definitions and modules in the baseline.
        candidate: The same in the candidate.
    """
    pairs = {
        (_own_name(left), _own_name(right))
        for left, right in matches.items()
        if _own_name(left) != _own_name(right)
    }
    sources = Counter(old for old, _ in pairs)
    targets = Counter(new for _, new in pairs)
    return {
        old: new
        for old, new in sorted(pairs)
        if sources[old] == targets[new] == 1 and old not in candidate and new not in baseline
    }


def _own_name(scope: Scope) -> str:
    return module_name(scope.file) if scope.kind == "module" else scope.name


def module_name(file: str) -> str:
    """Last part of the name under which a file is imported."""
    parts = file.removesuffix(".py").split("/")
    return parts[-2] if parts[-1] == "__init__" and len(parts) > 1 else parts[-1]


def statement_keys(
    statements: Sequence[Statement], scope: Scope | None, renames: Mapping[Scope | None, Renames]
) -> list[Key]:
    """Keys of a scope's statements, with the baseline's names turned into the candidate's.

    Args:
        statements: Statements of the scope.
        scope: The baseline's scope; None for the candidate, whose names stay.
        renames: New names by the scope that binds them; None stands for ``GLOBAL``.
    """
    levels: dict[int, Renames] = {}
    if scope is not None:
        levels = {level: renames.get(binder, {}) for level, binder in enumerate(scope.visible())}
        levels[GLOBAL] = renames.get(None, {})
    nothing: Renames = {}
    return [
        (
            statement.shape,
            tuple(levels.get(level, nothing).get(name, name) for level, name in statement.names),
        )
        for statement in statements
    ]


def variable_renames(
    left: Scope, right: Scope, keys: tuple[Sequence[Key], Sequence[Key]], matches: Matches
) -> dict[str, str]:
    """New names of the variables that ``left`` binds.

    A variable keeps its name if any statement or parameter that both versions have uses it. The
    others may have a new name if one of both names exists on one side only, and statements of
    equal shape at the same place support it more than any other.

    Args:
        left: Scope of the baseline.
        right: Its counterpart.
        keys: Keys of their statements so far.
        matches: Counterparts, for the names of nested functions.
    """
    if left.bound == right.bound:
        return {}
    old_keys, new_keys = keys
    pairs = align(old_keys, new_keys)
    kept = set(left.parameters) & set(right.parameters)
    votes: Counter[tuple[str, str]] = Counter()
    for child in left.children:
        other = matches.get(child)
        if other is not None and other.parent is right:
            votes[child.name, other.name] += 1
    for i, _ in pairs:
        kept.update(name for level, name in left.statements[i].names if level == 0)
    gone = [name for name in left.parameters if name not in kept]
    added = [name for name in right.parameters if name not in kept]
    if len(gone) == len(added):
        votes.update(zip(gone, added, strict=True))
    i = j = 0
    for next_i, next_j in [*pairs, (len(old_keys), len(new_keys))]:
        votes.update(
            _votes(
                left.statements[i:next_i],
                right.statements[j:next_j],
                old_keys[i:next_i],
                new_keys[j:next_j],
            )
        )
        i, j = next_i + 1, next_j + 1
    renames: dict[str, str] = {}
    for (old, new), _ in sorted(votes.items(), key=lambda item: (-item[1], item[0])):
        if old == new or old in kept or new in kept:
            continue
        if old in renames or new in renames.values():
            continue
        if old not in right.bound or new not in left.bound:
            renames[old] = new
    return renames


def _votes(
    left: Sequence[Statement],
    right: Sequence[Statement],
    left_keys: Sequence[Key],
    right_keys: Sequence[Key],
) -> Counter[tuple[str, str]]:
    """Names at the same places of statements that are equal but for their own scope's names."""
    votes: Counter[tuple[str, str]] = Counter()
    for i, j in align(_outlines(left, left_keys), _outlines(right, right_keys)):
        for (level, old), (_, new) in zip(left[i].names, right[j].names, strict=True):
            if level == 0:
                votes[old, new] += 1
    return votes


def _outlines(statements: Sequence[Statement], keys: Sequence[Key]) -> list[Key]:
    return [
        (
            shape,
            tuple(
                name for (level, _), name in zip(statement.names, names, strict=True) if level != 0
            ),
        )
        for statement, (shape, names) in zip(statements, keys, strict=True)
    ]
