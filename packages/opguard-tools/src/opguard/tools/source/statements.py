"""Normalised statements of a module, by function. Docstrings are left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opguard.tools.source.kinds import BLOCKS
from opguard.tools.source.normalise import all_arguments, normalise
from opguard.tools.source.scopes import Scope

_DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def module_scope(file: str, tree: ast.Module, definitions: frozenset[str]) -> Scope:
    """Normalise a module.

    Args:
        file: Path in the checkout.
        tree: Its parsed source.
        definitions: Names of functions, classes and modules of both versions.
    """
    scope = Scope(file, "", "<module>", "module", None, bound=_bound_names(tree))
    _fill(scope, tree.body, definitions)
    return scope


def defined_names(tree: ast.Module) -> Iterator[str]:
    """Names of all functions and classes in a module."""
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITION):
            yield node.name


def _fill(scope: Scope, body: list[ast.stmt], definitions: frozenset[str]) -> None:
    if body and _is_docstring(body[0]):
        body = body[1:]
    for node in _flatten(body):
        child = None
        if isinstance(node, _DEFINITION):
            child = _child_scope(scope, node)
            scope.children.append(child)
        scope.statements.append(normalise(node, scope, definitions))
        if child is not None and isinstance(node, _DEFINITION):
            _fill(child, node.body, definitions)


def _child_scope(
    parent: Scope, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
) -> Scope:
    prefix = "" if parent.kind == "module" else parent.qualname + "."
    if parent.kind == "function":
        prefix += "<locals>."
    qualname = prefix + node.name
    if isinstance(node, ast.ClassDef):
        return Scope(parent.file, node.name, qualname, "class", parent)
    parameters = tuple(argument.arg for argument in all_arguments(node.args))
    bound = _bound_names(node) | frozenset(parameters)
    return Scope(parent.file, node.name, qualname, "function", parent, parameters, bound)


def _flatten(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements with those of their blocks after them; definitions keep their bodies."""
    for node in body:
        yield node
        if not isinstance(node, _DEFINITION):
            for name in BLOCKS:
                for inner in getattr(node, name, ()):
                    yield from _flatten([inner] if isinstance(inner, ast.stmt) else inner.body)


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _bound_names(scope: ast.AST) -> frozenset[str]:
    """Names that a function or module binds, those of its lambdas and comprehensions included."""
    bound: set[str] = set()
    elsewhere: set[str] = set()
    pending: list[ast.AST] = list(getattr(scope, "body", ()))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.Global | ast.Nonlocal):
            elsewhere.update(node.names)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            bound.add(node.rest)
        if isinstance(node, _DEFINITION):
            bound.add(node.name)
            pending += node.decorator_list
            if isinstance(node, ast.ClassDef):
                pending += [*node.bases, *(keyword.value for keyword in node.keywords)]
            else:
                pending += [*node.args.defaults, *filter(None, node.args.kw_defaults)]
            continue
        pending += ast.iter_child_nodes(node)
    return frozenset(bound - elsewhere)
