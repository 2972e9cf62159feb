"""Operators of the language: symbol in the source and equivalent function of ``operator``."""

from __future__ import annotations

import ast

BINARY: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "add"),
    ast.Sub: ("-", "sub"),
    ast.Mult: ("*", "mul"),
    ast.Div: ("/", "truediv"),
    ast.MatMult: ("@", "matmul"),
    ast.Pow: ("**", "pow"),
    ast.Mod: ("%", "mod"),
    ast.FloorDiv: ("//", "floordiv"),
    ast.BitOr: ("|", "or_"),
    ast.BitAnd: ("&", "and_"),
    ast.BitXor: ("^", "xor"),
    ast.LShift: ("<<", "lshift"),
    ast.RShift: (">>", "rshift"),
}

COMPARE: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "lt"),
    ast.LtE: ("<=", "le"),
    ast.Gt: (">", "gt"),
    ast.GtE: (">=", "ge"),
    ast.Eq: ("==", "eq"),
    ast.NotEq: ("!=", "ne"),
}
"""Comparisons with a function that takes the operands in the same order.

``in`` is not here: ``operator.contains`` takes them the other way round, and so would evaluate
them in another order. ``is`` calls nothing.
"""

UNARY: dict[type[ast.unaryop], tuple[str, str]] = {
    ast.USub: ("-", "neg"),
    ast.Invert: ("~", "invert"),
    ast.UAdd: ("+", "pos"),
    ast.Not: ("not", "not_"),
}


def inplace(operator: type[ast.operator]) -> tuple[str, str]:
    """Symbol and function of an augmented assignment: ``+=`` is ``iadd``."""
    symbol, name = BINARY[operator]
    return symbol + "=", "i" + name.rstrip("_")


BINARY_BY_NAME = {name: kind for kind, (_, name) in BINARY.items()}
COMPARE_BY_NAME = {name: kind for kind, (_, name) in COMPARE.items()}
UNARY_BY_NAME = {name: kind for kind, (_, name) in UNARY.items()}
INPLACE_BY_NAME = {inplace(kind)[1]: kind for kind in BINARY}
