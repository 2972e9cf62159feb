"""Scopes of a module and the normalised statements that run in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

Position = tuple[int, int]
"""Line from 1 and column in UTF-8 bytes, where a statement begins."""

GLOBAL = -1
"""Level of names of definitions and modules of the checkout, which others refer to by name."""

FREE = -2
"""Level of names that nothing around the statement binds, such as builtins."""


@dataclass(slots=True, eq=False)
class Statement:
    """A simple statement, or the header of a compound one.

    Attributes:
        position: Where it begins.
        shape: Everything but the names in ``names``, whose places it shows.
        names: ``(level, name)`` in order. Level 0 is bound by the scope itself, 1 by the next
            scope around it, and so on; the other levels are ``GLOBAL`` and ``FREE``.
    """

    position: Position
    shape: str
    names: tuple[tuple[int, str], ...]


@dataclass(slots=True, eq=False)
class Scope:
    """A module, class or function with the statements that run in it.

    Attributes:
        file: Path in the checkout.
        name: Name without its surroundings; empty for a module.
        qualname: Qualified name as in code objects; ``<module>`` for a module.
        kind: ``module``, ``class`` or ``function``.
        parent: Scope around it.
        parameters: Parameter names in order.
        bound: Names that the scope binds, parameters included; empty for a class.
        statements: In source order, nested blocks included, nested definitions by their header.
        children: Definitions in it, in source order.
    """

    file: str
    name: str
    qualname: str
    kind: str
    parent: Scope | None
    parameters: tuple[str, ...] = ()
    bound: frozenset[str] = frozenset()
    statements: list[Statement] = field(default_factory=list)
    children: list[Scope] = field(default_factory=list)

    def visible(self) -> list[Scope]:
        """Scopes whose names the statements see, by level: the scope, then those around it."""
        scopes, around = [self], self.parent
        while around is not None:
            if around.kind != "class":  # its names are not seen from the functions in it
                scopes.append(around)
            around = around.parent
        return scopes

    def walk(self) -> Iterator[Scope]:
        """This scope and all below it, each before its children."""
        yield self
        for child in self.children:
            yield from child.walk()
