"""Alignment of two versions of a program, statement by statement.

Statements are compared in normalised form, function by function. What both versions have is
*shared*; what lies between is a *changed block*, numbered so that the changed statements at the
same place of both versions have the same number.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from opguard.tools.source.errors import UnusableSourceError
from opguard.tools.source.matching import Matches, match_scopes
from opguard.tools.source.renames import (
    Renames,
    definition_renames,
    module_name,
    statement_keys,
    variable_renames,
)
from opguard.tools.source.scopes import Scope
from opguard.tools.source.sequences import align
from opguard.tools.source.statements import defined_names, module_scope
from opguard.tools.source.text import SourceText, parse

Place = tuple[str, int, int]
"""File, line and column at which a statement begins."""

Function = tuple[str, str]
"""File and qualified name."""


@dataclass(frozen=True, slots=True)
class StatementKey:
    """A statement's place in both versions.

    Attributes:
        kind: ``shared`` when both versions have the statement, else ``changed``.
        number: Number of the statement, or of its changed block; equal on both sides, and never
            used twice for one kind.
        file_key: Identifies the file on both sides, also where it was renamed.
    """

    kind: Literal["shared", "changed"]
    number: int
    file_key: str


@dataclass(frozen=True, slots=True)
class Alignment:
    """Both versions, side by side.

    Attributes:
        baseline: Keys of the baseline's statements. Docstrings have none.
        candidate: Keys of the candidate's statements.
        files: Candidate's path by the baseline's, for files that both have.
        functions: Candidate's function, class or module by the baseline's.
        unusable: Why a file took no part: the side's name and path with the reason.
    """

    baseline: Mapping[Place, StatementKey]
    candidate: Mapping[Place, StatementKey]
    files: Mapping[str, str]
    functions: Mapping[Function, Function]
    unusable: Mapping[tuple[str, str], str]


def align_sources(baseline: Mapping[str, bytes], candidate: Mapping[str, bytes]) -> Alignment:
    """Align the sources of two versions.

    Found are functions that were moved between classes and files, renamed functions and files
    where nothing else resembles them, and consistently renamed local variables. Comments,
    formatting, docstrings and annotations make no difference.

    Args:
        baseline: Content by path relative to the checkout.
        candidate: The same for the other version.
    """
    unusable: dict[tuple[str, str], str] = {}
    trees = {
        side: _parse_all(side, sources, unusable)
        for side, sources in (("baseline", baseline), ("candidate", candidate))
    }
    names = {
        side: frozenset(name for tree in parsed.values() for name in defined_names(tree))
        | frozenset(map(module_name, parsed))
        for side, parsed in trees.items()
    }
    definitions = names["baseline"] | names["candidate"]
    left, right = (
        {file: module_scope(file, tree, definitions) for file, tree in parsed.items()}
        for parsed in trees.values()
    )
    matches = match_scopes(left, right)
    numbering = _Numbering(
        matches, definition_renames(matches, names["baseline"], names["candidate"])
    )
    for module in left.values():
        for scope in module.walk():
            numbering.baseline_scope(scope)
    matched = set(matches.values())
    for module in right.values():
        for scope in module.walk():
            if scope not in matched:
                numbering.changed_scope(scope, numbering.candidate)
    return Alignment(
        numbering.baseline,
        numbering.candidate,
        {a.file: b.file for a, b in matches.items() if a.kind == "module"},
        {(a.file, a.qualname): (b.file, b.qualname) for a, b in matches.items()},
        unusable,
    )


def _parse_all(
    side: str, sources: Mapping[str, bytes], unusable: dict[tuple[str, str], str]
) -> dict[str, ast.Module]:
    trees: dict[str, ast.Module] = {}
    for file in sorted(sources):
        try:
            trees[file] = parse(SourceText.decode(sources[file]).text)
        except UnusableSourceError as error:
            unusable[side, file] = error.details["reason"]
    return trees


class _Numbering:
    """Gives every statement its key, scope by scope."""

    def __init__(self, matches: Matches, definitions: Renames) -> None:
        self.baseline: dict[Place, StatementKey] = {}
        self.candidate: dict[Place, StatementKey] = {}
        self._matches = matches
        self._renames: dict[Scope | None, Renames] = {None: definitions}
        self._shared = 0
        self._changed = 0

    def baseline_scope(self, scope: Scope) -> None:
        """Number a scope of the baseline and its counterpart. Parents come first."""
        counterpart = self._matches.get(scope)
        if counterpart is None:
            self.changed_scope(scope, self.baseline)
            return
        new = statement_keys(counterpart.statements, None, self._renames)
        old = statement_keys(scope.statements, scope, self._renames)
        found = variable_renames(scope, counterpart, (old, new), self._matches)
        if found:
            self._renames[scope] = found
            old = statement_keys(scope.statements, scope, self._renames)
        file_key = scope.file
        i = j = 0
        for next_i, next_j in [*align(old, new), (len(old), len(new))]:
            if i < next_i or j < next_j:
                self._changed += 1
                key = StatementKey("changed", self._changed, file_key)
                for statement in scope.statements[i:next_i]:
                    self.baseline[(scope.file, *statement.position)] = key
                for statement in counterpart.statements[j:next_j]:
                    self.candidate[(counterpart.file, *statement.position)] = key
            if next_i < len(old):
                self._shared += 1
                key = StatementKey("shared", self._shared, file_key)
                self.baseline[(scope.file, *scope.statements[next_i].position)] = key
                place = (counterpart.file, *counterpart.statements[next_j].position)
                self.candidate[place] = key
            i, j = next_i + 1, next_j + 1

    def changed_scope(self, scope: Scope, keys: dict[Place, StatementKey]) -> None:
        """Number a scope that one version does not have: one changed block of its own."""
        self._changed += 1
        key = StatementKey("changed", self._changed, scope.file)
        for statement in scope.statements:
            keys[(scope.file, *statement.position)] = key
