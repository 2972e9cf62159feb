"""Tests of decoding and positions."""

from __future__ import annotations

import ast
import codecs

import pytest

from opguard.tools.source.errors import UnusableSourceError
from opguard.tools.source.text import SourceText, node_span, parse


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (b"x = 1\n", "utf-8"),
        (codecs.BOM_UTF8 + b"x = 1\n", "utf-8"),
        (codecs.BOM_UTF8 + b"# coding: utf-8\nx = 1\n", "utf-8"),
        ("# coding: latin-1\nx = 'é'\n".encode("latin-1"), "iso-8859-1"),
        ("#!/usr/bin/python\n# -*- coding: cp1251 -*-\nx = 'ж'\n".encode("cp1251"), "cp1251"),
        ("# a\r# coding: latin-1\rx = 'é'\r".encode("latin-1"), "iso-8859-1"),
        (
            "# a\r\n# vim: set fileencoding=shift_jis :\r\nx = 'あ'\r\n".encode("shift_jis"),
            "shift_jis",
        ),
    ],
)
def test_text_goes_back_to_the_same_bytes(content: bytes, encoding: str) -> None:
    source = SourceText.decode(content)
    assert source.encoding == encoding
    assert source.encode(source.text) == content


@pytest.mark.parametrize(
    "content",
    [
        b"x = '\xff'\n",
        b"# coding: no-such-codec\n",
        codecs.BOM_UTF8 + b"# coding: latin-1\n",
        b"# coding: utf-7\nx = '+AGE-'\n",
    ],
)
def test_source_that_cannot_be_decoded_and_encoded_again_is_refused(content: bytes) -> None:
    with pytest.raises(UnusableSourceError) as caught:
        SourceText.decode(content)
    assert caught.value.details["reason"]


@pytest.mark.parametrize("text", ["def f(:\n", "x = '\0'\n", "(" * 300 + ")" * 300, "if x:\nf()\n"])
def test_text_that_python_refuses_is_unusable(text: str) -> None:
    with pytest.raises(UnusableSourceError):
        parse(text)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_only_python_line_ends_separate_lines(end: str) -> None:
    text = f"a = '\x0b\x1c\u2028'{end}\x0cb = 'é', f(1){end}c = 2"
    source = SourceText.decode(text.encode())
    assert source.line_count == 3
    call = next(node for node in ast.walk(parse(text)) if isinstance(node, ast.Call))
    start, stop = source.span(call)
    assert source.text[start:stop] == "f(1)"
    assert node_span(call)[:2] == (2, 2)


def test_columns_are_bytes_of_utf8_whatever_the_encoding_is() -> None:
    content = "# coding: latin-1\nx = 'ééé' + f(é)\n".encode("latin-1")
    source = SourceText.decode(content)
    call = next(node for node in ast.walk(parse(source.text)) if isinstance(node, ast.Call))
    start, stop = source.span(call)
    assert source.text[start:stop] == "f(é)"
