"""Every error identifier with its meaning, for documentation and for the test that covers them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from opguard.tools.protocol.errors import OpGuardError, registered_errors


def error_catalogue() -> dict[str, type[OpGuardError]]:
    """All error classes of this distribution by identifier, in alphabetical order.

    Imports every module named ``errors`` of the package: an area keeps its errors in one.
    """
    package = importlib.import_module("opguard.tools")
    for module in pkgutil.walk_packages(package.__path__, "opguard.tools."):
        if module.name.rpartition(".")[2] == "errors":
            importlib.import_module(module.name)
    return dict(sorted(registered_errors().items()))


def describe(error: type[OpGuardError]) -> str:
    """The first line of the class's docstring."""
    return (inspect.getdoc(error) or "").partition("\n")[0]
