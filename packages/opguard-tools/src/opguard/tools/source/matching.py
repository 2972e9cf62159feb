"""Which module, class and function of one version is which of the other.

The same path and qualified name settle almost everything. What is left over was moved or
renamed: it is matched by its content, and only where the content says so without doubt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import PurePosixPath

from opguard.tools.source.scopes import Scope

_MOSTLY = 0.5
"""Share of common statements from which content of the same name counts as the same."""

_RENAMED_FILE = 0.6
"""The same for files of different names, where the name says nothing."""

_LEAD = 0.25
"""By how much a file must resemble its counterpart more than any other."""

Matches = dict[Scope, Scope]
"""Scopes of the baseline with their counterparts in the candidate."""


def match_scopes(baseline: Mapping[str, Scope], candidate: Mapping[str, Scope]) -> Matches:
    """Match modules by path, then everything in them, then what was moved or renamed.

    Args:
        baseline: Module scopes by path.
        candidate: The same for the other version.
    """
    matches: Matches = {}
    for path, module in baseline.items():
        if path in candidate:
            _match(module, candidate[path], matches)
    _match_files(baseline, candidate, matches)
    _match_unique(baseline, candidate, matches, _content_key, _nothing_more)
    _match_unique(baseline, candidate, matches, _name_key, _mostly_equal)
    return matches


def _match(left: Scope, right: Scope, matches: Matches) -> None:
    """Match two scopes and, by name and occurrence, what is defined in them."""
    matches[left] = right
    places: dict[tuple[str, str], list[Scope]] = {}
    for child in right.children:
        places.setdefault((child.kind, child.name), []).append(child)
    for child in left.children:
        same = places.get((child.kind, child.name))
        if same:
            counterpart = same.pop(0)
            if child not in matches:
                _match(child, counterpart, matches)


def _match_files(
    baseline: Mapping[str, Scope], candidate: Mapping[str, Scope], matches: Matches
) -> None:
    """Match files that exist on one side only: each other's only resembling file."""
    left = [module for path, module in baseline.items() if path not in candidate]
    right = [module for path, module in candidate.items() if path not in baseline]
    alike = {(a, b): similarity(a, b) for a in left for b in right}
    for (a, b), share in alike.items():
        same_name = PurePosixPath(a.file).name == PurePosixPath(b.file).name
        enough = _MOSTLY if same_name else _RENAMED_FILE
        rivals = [
            other
            for (x, y), other in alike.items()
            if (x is a) != (y is b) and other > share - _LEAD
        ]
        if share >= enough and not rivals:
            _match(a, b, matches)


def _match_unique(
    baseline: Mapping[str, Scope],
    candidate: Mapping[str, Scope],
    matches: Matches,
    key: Callable[[Scope], Hashable],
    accept: Callable[[Scope, Scope], bool],
) -> None:
    """Match leftover definitions whose key is theirs alone on both sides, larger ones first."""
    left = _unmatched(baseline.values(), matches.keys(), key)
    right = _unmatched(candidate.values(), set(matches.values()), key)
    for identity, scopes in left.items():
        counterparts = right.get(identity, ())
        if identity is None or len(scopes) != 1 or len(counterparts) != 1:
            continue
        taken = scopes[0] in matches or counterparts[0] in matches.values()
        if not taken and accept(scopes[0], counterparts[0]):
            _match(scopes[0], counterparts[0], matches)


def _unmatched(
    modules: Iterable[Scope], matched: Iterable[Scope], key: Callable[[Scope], Hashable]
) -> dict[Hashable, list[Scope]]:
    done = set(matched)
    found: dict[Hashable, list[Scope]] = {}
    for module in modules:
        for scope in module.walk():
            if scope.kind != "module" and scope not in done:
                found.setdefault(key(scope), []).append(scope)
    return found


def _content_key(scope: Scope) -> Hashable:
    """A definition's normalised content; None for one too small to be recognised by it."""
    size = sum(len(inner.statements) for inner in scope.walk())
    if size < 2:
        return ("small", scope.name, content(scope))
    return content(scope)


def _name_key(scope: Scope) -> Hashable:
    return (scope.kind, scope.name)


def _nothing_more(left: Scope, right: Scope) -> bool:
    return True


def _mostly_equal(left: Scope, right: Scope) -> bool:
    return similarity(left, right) >= _MOSTLY


def similarity(left: Scope, right: Scope) -> float:
    """Share of statements that two scopes have in common, from 0 to 1, whatever their order."""
    first, second = _outlines(left), _outlines(right)
    largest = max(first.total(), second.total())
    return (first & second).total() / largest if largest else 0.0


def _outlines(root: Scope) -> Counter[Hashable]:
    """Statements without the names that their own scope binds, which may have been renamed."""
    return Counter(
        (statement.shape, tuple(name for level, name in statement.names if level != 0))
        for scope in root.walk()
        for statement in scope.statements
    )


def content(root: Scope) -> Hashable:
    """What a scope does, without its own name and the names that it chose for its variables.

    Variables are numbered by first appearance, parameters first, so that a consistent renaming
    leaves the content equal.
    """
    numbers: dict[tuple[Scope, str], int] = {}
    inside = set(root.walk())
    parts: list[Hashable] = []
    for scope in root.walk():
        for parameter in scope.parameters:
            numbers.setdefault((scope, parameter), len(numbers))
        visible = scope.visible()
        parts.append((scope.kind, len(scope.parameters), len(scope.statements)))
        for statement in scope.statements:
            names: list[Hashable] = []
            for level, name in statement.names:
                binder = visible[level] if level >= 0 else None
                if binder in inside and binder is not None:
                    names.append(numbers.setdefault((binder, name), len(numbers)))
                else:
                    names.append(name)
            parts.append((statement.shape, tuple(names)))
    return tuple(parts)
