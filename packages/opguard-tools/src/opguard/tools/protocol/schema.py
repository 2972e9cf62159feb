"""JSON Schemas of the protocol, made from the models and the error registry."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

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
        result = _schema(CapabilitiesResult, "serialization")
        return {"request": None, "example_request": None, "result": result}
    action = ACTIONS[name]
    return {
        "request": _schema(action.request, "validation"),
        "example_request": example(action.request),
        "result": _schema(action.result, "serialization"),
    }


def _schema(model: type[BaseModel], mode: Literal["validation", "serialization"]) -> dict[str, Any]:
    """A model's schema; what its docstring says about the code's own sources is left out."""
    document: dict[str, Any] = _for_callers(model.model_json_schema(mode=mode))
    return document


def _for_callers(value: Any) -> Any:
    if isinstance(value, list):
        return [_for_callers(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: _for_callers(item) for key, item in value.items()}
    if isinstance(found.get("description"), str):
        found["description"] = found["description"].partition("\n\nSource:")[0]
    return found


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
