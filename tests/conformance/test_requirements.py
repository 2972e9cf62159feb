"""The manifest of requirements and the tests name each other completely."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

from opguard_e2e import REPOSITORY

MANIFEST = Path(__file__).with_name("requirements.toml")
TEST_FOLDERS = ("packages/*/tests", "crates/*/tests/python", "cuda/tests", "tests")


def manifest() -> dict[str, dict[str, str]]:
    """Requirements by id."""
    return tomllib.loads(MANIFEST.read_text())


def marked_requirements() -> dict[str, set[str]]:
    """For each id in a ``pytest.mark.requirement`` call, the files that carry it."""
    marked: dict[str, set[str]] = {}
    for pattern in TEST_FOLDERS:
        for folder in REPOSITORY.glob(pattern):
            for path in folder.rglob("test_*.py"):
                for identifier in identifiers_in(ast.parse(path.read_text())):
                    marked.setdefault(identifier, set()).add(str(path.relative_to(REPOSITORY)))
    return marked


def identifiers_in(tree: ast.Module) -> list[str]:
    """The literal arguments of every ``…mark.requirement(…)`` call."""
    return [
        argument.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "requirement"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def test_scan_reads_identifiers_of_a_mark() -> None:
    source = '@pytest.mark.requirement("A1", "B2")\ndef test_it():\n    pass\n'
    assert identifiers_in(ast.parse(source)) == ["A1", "B2"]


def test_every_marked_requirement_is_in_the_manifest() -> None:
    known = manifest()
    unknown = {key: files for key, files in marked_requirements().items() if key not in known}
    assert unknown == {}


def test_every_requirement_of_this_version_has_a_test() -> None:
    wanted = {key for key, entry in manifest().items() if "deferred" not in entry}
    assert sorted(wanted - marked_requirements().keys()) == []


def test_no_deferred_requirement_is_claimed_by_a_test() -> None:
    deferred = {key for key, entry in manifest().items() if "deferred" in entry}
    assert sorted(deferred & marked_requirements().keys()) == []


def test_manifest_lists_each_family_without_gaps() -> None:
    last = {"A": 11, "B": 13, "C": 6, "D": 9, "E": 4, "F": 14, "G": 6, "H": 9, "R": 10}
    expected = [f"{family}{number}" for family in last for number in range(1, last[family] + 1)]
    assert list(manifest()) == expected
