from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opguard.tools.protocol.errors import (
    InvalidRequestError,
    RequestUnreadableError,
    UnsupportedProtocolVersionError,
)
from opguard.tools.protocol.models import DiscoverRequest
from opguard.tools.protocol.models.base import example
from opguard.tools.protocol.reading import read_request


def write(folder: Path, content: bytes) -> Path:
    path = folder / "request.json"
    path.write_bytes(content)
    return path


def document(**changes: Any) -> bytes:
    return json.dumps({**example(DiscoverRequest), **changes}).encode()


def test_request_is_read_with_and_without_a_byte_order_mark(tmp_path: Path) -> None:
    plain = read_request(write(tmp_path, document()), DiscoverRequest)
    marked = read_request(write(tmp_path, b"\xef\xbb\xbf" + document()), DiscoverRequest)

    assert plain == marked == DiscoverRequest.model_validate(example(DiscoverRequest))


@pytest.mark.requirement("A2")
@pytest.mark.parametrize("version", [None, 0, 2, "1", 1.0, True, [1]])
def test_other_version_is_refused_and_supported_ones_are_named(
    tmp_path: Path, version: Any
) -> None:
    path = write(tmp_path, document(protocol_version=version))

    with pytest.raises(UnsupportedProtocolVersionError) as caught:
        read_request(path, DiscoverRequest)

    assert caught.value.details == {"path": path, "supported": (1,)}
    assert "supported versions: 1" in caught.value.message


@pytest.mark.requirement("A2")
def test_missing_version_is_refused(tmp_path: Path) -> None:
    content = example(DiscoverRequest)
    del content["protocol_version"]

    with pytest.raises(UnsupportedProtocolVersionError):
        read_request(write(tmp_path, json.dumps(content).encode()), DiscoverRequest)


@pytest.mark.requirement("A6")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1]",
        b'"text"',
        b"\xff\xfe{}",
        b'{"protocol_version": 1, "timeout_seconds": NaN}',
        b'{"protocol_version": 1, "output": "a", "output": "b"}',
        b"[" * 100_000,
    ],
    ids=["empty", "cut", "list", "text", "utf-16", "nan", "duplicate", "deep"],
)
def test_file_that_is_no_json_object_is_unreadable(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path, content)

    with pytest.raises(RequestUnreadableError) as caught:
        read_request(path, DiscoverRequest)

    assert caught.value.details == {"path": path}


@pytest.mark.requirement("A6")
@pytest.mark.parametrize("name", ["missing.json", "."])
def test_missing_file_and_directory_are_unreadable(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestUnreadableError) as caught:
        read_request(tmp_path / name, DiscoverRequest)

    assert caught.value.details == {"path": tmp_path / name}


@pytest.mark.requirement("A9")
def test_unknown_field_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read_request(write(tmp_path, document(outptu="x")), DiscoverRequest)

    assert caught.value.details == {"fields": ["outptu"]}
