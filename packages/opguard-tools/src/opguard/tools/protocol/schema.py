"""JSON Schemas of the protocol, made from the models and the error registry."""

from __future__ import annotations

from typing import Any

from opguard.tools.actions import ACTIONS
from opguard.tools.protocol.catalogue import describe, error_catalogue
from opguard.tools.protocol.models import PROTOCOL_VERSION, CapabilitiesResult
from opguard.tools.protocol.models.base import example


def action_schema(name: str) -> dict[str, Any]:
    """Schemas of one action.

    Args:
        name: ``capabilities`` or an action with a request.

    Returns:
        ``request`` and ``result`` as JSON Schema, and an ``example_request``; an action without
        a request has null for both.

    Source:
        Protocol requirement A9.
    """
    if name == "capabilities":
        result = CapabilitiesResult.model_json_schema(mode="serialization")
        return {"request": None, "example_request": None, "result": result}
    action = ACTIONS[name]
    return {
        "request": action.request.model_json_schema(mode="validation"),
        "example_request": example(action.request),
        "result": action.result.model_json_schema(mode="serialization"),
    }


def protocol_schema() -> dict[str, Any]:
    """Schemas of all actions, the envelope, and every error type with its meaning."""
    return {
        "protocol_version": PROTOCOL_VERSION,
        "envelope": _envelope_schema(),
        "actions": {name: action_schema(name) for name in ("capabilities", *ACTIONS)},
        "errors": {name: describe(error) for name, error in error_catalogue().items()},
    }


def _envelope_schema() -> dict[str, Any]:
    version = {"const": PROTOCOL_VERSION}
    error = {
        "type": "object",
        "properties": {"type": {"enum": list(error_catalogue())}, "message": {"type": "string"}},
        "required": ["type", "message"],
        "additionalProperties": False,
    }
    return {
        "oneOf": [
            {
                "type": "object",
                "properties": {
                    "protocol_version": version,
                    "ok": {"const": ok},
                    name: content,
                },
                "required": ["protocol_version", "ok", name],
                "additionalProperties": False,
            }
            for ok, name, content in (
                (True, "result", {"type": "object"}),
                (False, "error", error),
            )
        ]
    }
