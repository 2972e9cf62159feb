"""Base model and value types shared by all requests and results.

Every model is closed (an unknown field is refused with its path) and strict (a number written as a
string is refused), so that a misspelt field can never be ignored silently.
"""

from __future__ import annotations

import os
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

PROTOCOL_VERSION: Literal[1] = 1
"""Version of requests, results and the envelope written by this program."""

SUPPORTED_PROTOCOL_VERSIONS = (1,)
"""Versions that a request may carry."""

VARIES: JsonDict = {"varies": True}
"""Schema mark of a field that may differ between two runs on the same inputs (A11)."""


class ClosedModel(BaseModel):
    """A strict, immutable model that refuses unknown fields.

    Source:
        Protocol requirement A9.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _system_text(value: str) -> str:
    """Refuse text that cannot be handed to the operating system.

    Raises:
        ValueError: The text holds a NUL character or a lone surrogate.
    """
    if "\0" in value:
        raise ValueError("must not hold a NUL character")
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        raise ValueError("cannot be encoded for the operating system") from None
    return value


SystemText = Annotated[str, AfterValidator(_system_text)]
"""Text that can be a program argument, a path or the value of an environment variable."""

SystemPath = Annotated[str, Field(min_length=1), AfterValidator(_system_text)]
"""A path in a request; a relative one is taken from the working directory of this program."""

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""A SHA-256 digest, 64 lower-case hexadecimal digits."""

CaptureId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
"""Identity of one capture, 32 lower-case hexadecimal digits, drawn at random."""


def _distinct_ranks(value: list[int]) -> list[int]:
    """Order the ranks and refuse repeated ones.

    Raises:
        ValueError: A rank appears twice.
    """
    repeated = sorted({rank for rank in value if value.count(rank) > 1})
    if repeated:
        raise ValueError(f"rank {repeated[0]} appears more than once")
    return sorted(value)


Rank = Annotated[int, Field(ge=0, le=1_048_575)]
"""A global rank; the upper end keeps file names and lists within reason."""

RankList = Annotated[list[Rank], Field(min_length=1), AfterValidator(_distinct_ranks)]
"""A set of global ranks, kept in ascending order."""


def stable_view(document: BaseModel) -> dict[str, Any]:
    """A result without the fields that may vary from run to run.

    Args:
        document: Any result model.

    Returns:
        The model as JSON data, less every field marked ``varies``, at every depth.

    Source:
        Protocol requirement A11.
    """
    view: dict[str, Any] = {}
    for name, field in type(document).model_fields.items():
        extra = field.json_schema_extra
        if isinstance(extra, dict) and extra.get("varies"):
            continue
        view[name] = _stable_value(getattr(document, name))
    return view


def _stable_value(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return stable_view(value)
    if isinstance(value, list):
        return [_stable_value(item) for item in value]
    if isinstance(value, dict):
        return {key: _stable_value(item) for key, item in value.items()}
    return value


def example(model: type[BaseModel]) -> dict[str, Any]:
    """A complete instance of a model, put together from the examples of its fields.

    Args:
        model: A request or result model.

    Returns:
        JSON data that the model accepts: optional parts that are models are left out, and a list
        of models holds one entry.

    Raises:
        LookupError: A field that holds no model has no example.
    """
    document: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if field.examples:
            document[name] = field.examples[0]
            continue
        nested = nested_model(field.annotation)
        if nested is None:
            raise LookupError(f"field {name} of {model.__name__} has no example")
        if get_origin(field.annotation) is list:
            document[name] = [example(nested)]
        elif field.is_required():
            document[name] = example(nested)
    return document


def nested_model(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation ``M``, ``list[M]`` or ``M | None`` speaks of, if any."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (list, Union, types.UnionType):
        for argument in get_args(annotation):
            found = nested_model(argument)
            if found is not None:
                return found
    return None
