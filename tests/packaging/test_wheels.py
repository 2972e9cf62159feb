"""What the wheels contain and require, and what importing them loads."""

from __future__ import annotations

import importlib
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from opguard_e2e import REPOSITORY

DISTRIBUTIONS = {"xorsig", "opguard_core", "opguard_tools"}
NAMESPACES = {"opguard_core": "opguard/core/", "opguard_tools": "opguard/tools/"}


def names_in(wheel: Path) -> list[str]:
    """Paths of the files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def requirements_of(wheel: Path) -> set[str]:
    """Names of the distributions that a wheel requires without an extra."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    return {line.split(";")[0].rstrip("0123456789.,<>=!~ ").strip() for line in required}


def loaded_by(statement: str) -> set[str]:
    """Top-level modules in ``sys.modules`` of a fresh interpreter after a statement."""
    program = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    completed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return set(completed.stdout.split())


def test_one_wheel_is_built_for_each_distribution(wheels: dict[str, Path]) -> None:
    assert wheels.keys() == DISTRIBUTIONS


def test_wheels_hold_only_their_own_part_of_the_namespace(wheels: dict[str, Path]) -> None:
    for distribution, prefix in NAMESPACES.items():
        foreign = [
            name
            for name in names_in(wheels[distribution])
            if not name.startswith(prefix) and ".dist-info/" not in name
        ]
        assert foreign == []


def test_wheels_carry_type_marker_and_no_tests(wheels: dict[str, Path]) -> None:
    for distribution, prefix in {**NAMESPACES, "xorsig": "xorsig/"}.items():
        names = names_in(wheels[distribution])
        assert f"{prefix}py.typed" in names
        assert [name for name in names if "tests/" in name or "__pycache__" in name] == []


def test_wheels_carry_the_licence(wheels: dict[str, Path]) -> None:
    for wheel in wheels.values():
        assert [name for name in names_in(wheel) if name.endswith("licenses/LICENSE")]


def test_native_wheel_serves_every_supported_python(wheels: dict[str, Path]) -> None:
    _, _, python, abi, _ = wheels["xorsig"].stem.split("-")
    assert (python, abi) == ("cp311", "abi3")


def test_tools_do_not_require_torch(wheels: dict[str, Path]) -> None:
    required = requirements_of(wheels["opguard_tools"])
    assert "xorsig" in required
    assert required.isdisjoint({"torch", "opguard-core"})


def test_core_requires_torch_and_not_the_tools(wheels: dict[str, Path]) -> None:
    assert requirements_of(wheels["opguard_core"]) >= {"torch", "xorsig"}
    assert "opguard-tools" not in requirements_of(wheels["opguard_core"])


def test_namespace_folder_holds_no_file() -> None:
    for package in [*REPOSITORY.glob("packages/*/src/opguard"), REPOSITORY / "cuda/src/opguard"]:
        assert [path.name for path in package.iterdir() if path.is_file()] == []
    assert importlib.import_module("opguard").__file__ is None


@pytest.mark.parametrize("module", ["opguard.core", "opguard.tools"])
def test_importing_a_package_loads_neither_torch_nor_cuda(module: str) -> None:
    loaded = loaded_by(f"import {module}")
    assert sorted(name for name in loaded if name.partition(".")[0] in {"torch", "cuda"}) == []


def test_importing_the_tools_loads_no_heavy_package() -> None:
    heavy = {"polars", "pydantic", "perfetto", "numpy", "jinja2", "rich", "yaml"}
    loaded = {name.partition(".")[0] for name in loaded_by("import opguard.tools")}
    assert loaded & heavy == set()
