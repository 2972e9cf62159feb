"""Reading a request: file, JSON, version, model, each failure with its own error."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError

from opguard.tools.protocol.errors import (
    InvalidRequestError,
    RequestUnreadableError,
    UnsupportedProtocolVersionError,
)
from opguard.tools.protocol.models.base import SUPPORTED_PROTOCOL_VERSIONS, ClosedModel

Model = TypeVar("Model", bound=ClosedModel)


def read_request(path: Path, model: type[Model]) -> Model:
    """Read and validate a request file.

    Args:
        path: The request file, UTF-8 JSON.
        model: The request model of the action.

    Returns:
        The validated request.

    Raises:
        RequestUnreadableError: The file is missing, unreadable, or not one JSON object.
        UnsupportedProtocolVersionError: ``protocol_version`` is missing or not supported.
        InvalidRequestError: A field is unknown, missing or has an unfit value.

    Source:
        Protocol requirements A2, A6, A9.
    """
    document = read_json_object(path)
    version = document.get("protocol_version")
    if type(version) is not int or version not in SUPPORTED_PROTOCOL_VERSIONS:
        stated = "is missing" if version is None else f"is {json.dumps(version)}"
        supported = ", ".join(str(number) for number in SUPPORTED_PROTOCOL_VERSIONS)
        raise UnsupportedProtocolVersionError(
            f"protocol_version {stated} in {path}; supported versions: {supported}",
            path=path,
            supported=SUPPORTED_PROTOCOL_VERSIONS,
        )
    return validate(document, model, source=str(path))


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object that a file holds.

    Raises:
        RequestUnreadableError: The file is missing, unreadable, not UTF-8 JSON, not an object, or
            names one key twice (of which only one could be obeyed).
    """
    try:
        # utf-8-sig: editors on some systems put a byte order mark in front.
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise RequestUnreadableError(
            f"cannot read the request file {path}: {error.strerror}; check --request", path=path
        ) from error
    except UnicodeDecodeError as error:
        raise RequestUnreadableError(
            f"the request file {path} is not UTF-8 (byte {error.start}); write it as UTF-8 JSON",
            path=path,
        ) from error
    try:
        document = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise RequestUnreadableError(
            f"the request file {path} is not JSON: {error.msg} at line {error.lineno}, column "
            f"{error.colno}",
            path=path,
        ) from error
    except (ValueError, RecursionError) as error:
        raise RequestUnreadableError(
            f"the request file {path} is not usable JSON: {error}", path=path
        ) from error
    if not isinstance(document, dict):
        raise RequestUnreadableError(
            f"the request file {path} must hold one JSON object, not {type(document).__name__}",
            path=path,
        )
    return document


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, value in pairs:
        if key in document:
            raise ValueError(f"the key {key!r} appears twice in one object; keep one of them")
        document[key] = value
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def validate(document: Any, model: type[Model], *, source: str) -> Model:
    """Validate JSON data against a model.

    Args:
        document: Parsed JSON.
        model: The model it must follow.
        source: Where the data came from, for the message.

    Raises:
        InvalidRequestError: With one line per fault, each with the field's path.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        faults = [(_path(fault["loc"]), fault["msg"]) for fault in error.errors()]
        lines = "; ".join(f"{path}: {text}" for path, text in faults)
        raise InvalidRequestError(
            f"{source} is not a valid {model.__name__}: {lines}. The command `schema` prints what "
            "each field takes",
            fields=[path for path, _ in faults],
        ) from error


def _path(location: Sequence[int | str]) -> str:
    """``("workload", "ranks", 0)`` as ``workload.ranks[0]``."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path or "(document)"
