"""The protocol's actions: one module each, with ``run(request) -> result``.

The table names modules instead of importing them: ``capabilities`` and ``--help`` need not load
what an action works with.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from opguard.tools.protocol.models import (
    ActionRequest,
    ClosedModel,
    CompareRequest,
    CompareResult,
    DiscoverRequest,
    DiscoverResult,
    PrepareRequest,
    PrepareResult,
    TraceRequest,
    TraceResult,
)


@dataclass(frozen=True)
class Action:
    """One action of the protocol.

    Attributes:
        name: What stands on the command line.
        request: Its request model.
        result: Its result model.
    """

    name: str
    request: type[ActionRequest]
    result: type[ClosedModel]

    def load(self) -> Callable[[ActionRequest], ClosedModel]:
        """Import the module that implements the action and return its ``run``."""
        module = importlib.import_module(f"opguard.tools.actions.{self.name}")
        run: Callable[[ActionRequest], ClosedModel] = module.run
        return run


ACTIONS = {
    action.name: action
    for action in (
        Action("discover", DiscoverRequest, DiscoverResult),
        Action("prepare", PrepareRequest, PrepareResult),
        Action("trace", TraceRequest, TraceResult),
        Action("compare", CompareRequest, CompareResult),
    )
}
"""Actions that take a request, in the order in which a comparison uses them."""
