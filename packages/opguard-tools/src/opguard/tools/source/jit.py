"""Functions that a compiler reads as source text, so that no wrapper may stand in them."""

from __future__ import annotations

import ast

from opguard.tools.source.kinds import walk, walk_statements
from opguard.tools.source.names import compiler_words, dotted, source_compiler
from opguard.tools.source.text import SourceText

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def compiled_definitions(
    source: SourceText, tree: ast.Module, imports: dict[str, str]
) -> dict[Definition, str]:
    """Functions and classes that are compiled from their source, each with the compiler's name.

    Found are definitions under such a decorator, those whose name is handed to such a compiler
    (``fast = torch.jit.script(slow)``, ``torch.jit.script(Model())``), and what these call by
    name in the same module, because ``torch.jit.script`` compiles that too. A module that is
    scripted elsewhere cannot be seen here.

    Args:
        source: Text of the module.
        tree: The module.
        imports: What its imported names stand for.

    Source:
        Protocol requirement C3.
    """
    words = compiler_words(imports)
    if not any(word in source.text for word in words):
        return {}
    found: dict[Definition, str] = {}
    by_name: dict[str, list[Definition]] = {}
    for statement in walk_statements(tree):
        if isinstance(statement, _DEFINITION):
            by_name.setdefault(statement.name, []).append(statement)
            for decorator in statement.decorator_list:
                compiler = source_compiler(decorator, imports)
                if compiler is not None:
                    found.setdefault(statement, compiler)
    for node in walk(tree, source.lines_with(words)):
        if isinstance(node, ast.Call) and node.args:
            compiler = source_compiler(node.func, imports)
            if compiler is not None:
                for name in _wrapped_names(node.args[0]):
                    for definition in by_name.get(name, ()):
                        found.setdefault(definition, compiler)
    pending = [definition for definition in found if "script" in found[definition]]
    while pending:
        caller = pending.pop()
        for node in walk(caller):
            callee = dotted(node.func, {}) if isinstance(node, ast.Call) else None
            if callee is not None and "." not in callee[0]:
                for definition in by_name.get(callee[0], ()):
                    if definition not in found and definition is not caller:
                        found[definition] = found[caller]
                        pending.append(definition)
    return found


def _wrapped_names(argument: ast.expr) -> list[str]:
    """Names of a function or of a class being instantiated, in the argument of a compiler."""
    if isinstance(argument, ast.Call):
        argument = argument.func
    return [argument.id] if isinstance(argument, ast.Name) else []
