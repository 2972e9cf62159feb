"""The generated pages are what the code would generate today."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from opguard_e2e import REPOSITORY

PAGES = ("cli.md", "errors.md", "protocol.md", "python.md")


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """`docs/generate_reference.py` as a module."""
    path = REPOSITORY / "docs" / "generate_reference.py"
    spec = importlib.util.spec_from_file_location("generate_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PAGES)
def test_page_is_current(generator: ModuleType, name: str) -> None:
    written = (REPOSITORY / "docs" / "reference" / name).read_text()
    assert written == generator.pages()[name], "run `nox -s docs -- --write`"


def test_generator_writes_every_page(generator: ModuleType) -> None:
    assert sorted(generator.pages()) == sorted(PAGES)


def test_every_action_of_the_protocol_is_documented(generator: ModuleType) -> None:
    from opguard.tools.protocol.models import CapabilitiesResult

    text = generator.pages()["protocol.md"]
    assert "## capabilities" in text
    assert f"### {CapabilitiesResult.__name__}" in text
