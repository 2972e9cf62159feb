"""The public names of the packages are these and no others; xorsig has a test of its own."""

from __future__ import annotations

import importlib
import inspect

import pytest

PUBLIC = {
    "opguard.core": [
        "EmbeddedSession",
        "Session",
        "__version__",
        "capture",
        "region_signatures",
        "start",
        "xor_signature",
        "xor_signature_rows",
    ],
}


@pytest.mark.requirement("F14")
@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_the_literal_list(name: str) -> None:
    module = importlib.import_module(name)
    assert sorted(module.__all__) == sorted(PUBLIC[name])
    assert [public for public in module.__all__ if not hasattr(module, public)] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_public_functions_and_classes_have_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    public = [getattr(module, entry) for entry in module.__all__]
    callables = [entry for entry in public if callable(entry)]
    assert [entry.__name__ for entry in callables if not inspect.getdoc(entry)] == []
