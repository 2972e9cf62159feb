"""A process that runs instrumented source takes the bytecode of all other files."""

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
sys.path[:0] = {paths!r}
from opguard.tools.libraries import BytecodeLinks
links = BytecodeLinks({instrumented!r})
sys.meta_path.insert(0, links)
import package.inner, mine
print(package.inner.ORIGIN, mine.ORIGIN)
"""


def write(path: Path, origin: str) -> None:
    """A module, and bytecode beside it that says something else."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("ORIGIN = 'bytecode'\n")
    py_compile.compile(str(path), doraise=True)
    status = path.stat()
    path.write_text(f"ORIGIN = {origin!r}\n".ljust(status.st_size - 1) + "\n")
    assert path.stat().st_size == status.st_size
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def run(tmp_path: Path, instrumented: list[str]) -> list[str]:
    program = PROGRAM.format(
        paths=[str(tmp_path / "site"), str(tmp_path / "checkout")], instrumented=instrumented
    )
    completed = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPYCACHEPREFIX": str(tmp_path / "prefix")},
        capture_output=True,
        text=True,
        check=True,
    )
    return completed.stdout.split()


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    site = tmp_path / "site" / "package"
    site.mkdir(parents=True)
    (site / "__init__.py").touch()
    write(site / "inner.py", "source")
    write(tmp_path / "checkout" / "mine.py", "source")
    return tmp_path


@pytest.mark.requirement("D4")
def test_bytecode_beside_libraries_serves(modules: Path) -> None:
    assert run(modules, []) == ["bytecode", "bytecode"]


@pytest.mark.requirement("D4")
def test_bytecode_beside_an_instrumented_file_does_not(modules: Path) -> None:
    (modules / "link").symlink_to(modules / "checkout")
    assert run(modules, [str(modules / "link" / "mine.py")]) == ["bytecode", "source"]


@pytest.mark.requirement("D4")
def test_stale_bytecode_is_made_anew_below_the_prefix_alone(modules: Path) -> None:
    inner = modules / "site" / "package" / "inner.py"
    os.utime(inner, ns=(0, 0))
    (beside,) = (inner.parent / "__pycache__").glob("inner.*")
    before = beside.read_bytes()
    assert run(modules, []) == ["source", "bytecode"]
    assert beside.read_bytes() == before
