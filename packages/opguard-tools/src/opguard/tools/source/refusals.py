"""Why an expression cannot be wrapped without changing what the program does."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from opguard.tools.source.jit import Definition
from opguard.tools.source.kinds import FORMAT_POSITIONS, walk
from opguard.tools.source.names import uses_caller_frame
from opguard.tools.source.operators import COMPARE
from opguard.tools.source.plan import Kind
from opguard.tools.source.text import SourceText

ASYNCHRONOUS = "an asynchronous iterable has no wrapped form"
TEMPLATE = "a template string keeps the text of its expressions"
_OLD_FORMAT = "positions inside an f-string are not usable on Python 3.11"
_SELF_DOCUMENTING = "an f-string with = shows the text of its expression"
_FORMAT_ATTRIBUTE = "the wrapped form of an attribute needs quotes, which may end the f-string"
_ANNOTATION = "annotations are kept as text (from __future__ import annotations)"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that depend on the module.

    Attributes:
        source: Text of the module.
        imports: What its imported names stand for.
        getattr_rebound: Whether the module gives the name ``getattr`` a meaning of its own.
        annotation: Reason for expressions in annotations, or None where these are evaluated.
    """

    source: SourceText
    imports: dict[str, str]
    getattr_rebound: bool
    annotation: str | None

    @classmethod
    def of_module(cls, source: SourceText, tree: ast.Module, imports: dict[str, str]) -> Rules:
        """Read off a module what the rules need."""
        future = any(
            isinstance(node, ast.ImportFrom)
            and node.module == "__future__"
            and any(alias.name == "annotations" for alias in node.names)
            for node in tree.body
        )
        rebound = "getattr" in source.text and any(
            _binds_getattr(inner)
            for node in walk(tree, source.lines_with(["getattr"]))
            for inner in ast.iter_child_nodes(node)
        )
        return cls(source, imports, rebound, _ANNOTATION if future else None)

    def call(self, node: ast.Call) -> str | None:
        """Reason against wrapping a call."""
        if uses_caller_frame(node.func, self.imports):
            return f"{ast.unparse(node.func)} looks at the frame that calls it"
        return None

    def attribute(self, node: ast.Attribute, class_name: str | None) -> str | None:
        """Reason against wrapping an attribute load.

        Args:
            node: The attribute.
            class_name: Innermost class around it, which would mangle a private name.
        """
        if self.getattr_rebound:
            return "the module rebinds the name getattr"
        if class_name is not None and node.attr.startswith("__") and not node.attr.endswith("__"):
            return "the class mangles this private name"
        value = node.value
        if isinstance(value, ast.Call) and _is_name(value.func, "super"):
            return "super() looks at the frame that calls it"
        return None

    def self_documenting(self, node: ast.FormattedValue) -> str | None:
        """Reason against wrapping in ``{expression=}``, whose text is part of the string."""
        if not FORMAT_POSITIONS:
            return _OLD_FORMAT
        _, value_end = self.source.span(node.value)
        _, end = self.source.span(node)
        after = self.source.text[value_end:end].lstrip(" \t\f\r\n)")
        return _SELF_DOCUMENTING if after.startswith("=") else None


def inside_format(kind: Kind) -> str | None:
    """Reason against wrapping something inside an f-string."""
    if not FORMAT_POSITIONS:
        return _OLD_FORMAT
    return _FORMAT_ATTRIBUTE if kind == "attribute" else None


def compare(node: ast.Compare) -> str | None:
    """Reason against wrapping a comparison."""
    if len(node.ops) > 1:
        return "a chained comparison evaluates its middle operand once and may stop early"
    if isinstance(node.ops[0], ast.In | ast.NotIn):
        return "a membership test calls its right operand, which is evaluated last"
    if type(node.ops[0]) not in COMPARE:
        return "an identity test calls nothing"
    return None


def augmented(node: ast.AugAssign) -> str | None:
    """Reason against wrapping an augmented assignment.

    A name, or an attribute of a name, is assigned the wrapped operator's result, which evaluates
    everything as often as the original does. A subscript's wrapped base sees load and store.
    """
    target = node.target
    if isinstance(target, ast.Name):
        return None
    if isinstance(target, ast.Subscript):
        return "its subscript records the load and the store"
    if not isinstance(target.value, ast.Name):
        return "evaluating the target's object again would repeat its calls"
    if any(isinstance(inner, ast.NamedExpr) for inner in ast.walk(node)):
        return "the statement binds names that its target may use"
    return None


def compiled(node: Definition, compiler: str) -> str:
    """Reason for everything in a definition that a compiler reads as source."""
    what = "class" if isinstance(node, ast.ClassDef) else "function"
    return f"{what} {node.name} (line {node.lineno}) is compiled from its source by {compiler}"


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _binds_getattr(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id == "getattr" and not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.arg):
        return node.arg == "getattr"
    if isinstance(node, ast.alias):
        return (node.asname or node.name) == "getattr"
    return getattr(node, "name", None) == "getattr"
