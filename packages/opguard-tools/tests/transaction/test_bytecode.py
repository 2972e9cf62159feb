"""No compiled code of an instrumented file outlives the operation."""

from __future__ import annotations

import hashlib
import os
import py_compile
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opguard.tools.transaction import bytecode_environment
from opguard.tools.transaction.bytecode import remove_stale_bytecode

ORIGINAL = b"value = 'original'\n"
INSTRUMENTED = b"value = 'with sites'\n"


def imported(checkout: Path, environment: dict[str, str], *flags: str) -> str:
    """What a fresh interpreter sees as ``module.value``."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    program = "import sys; sys.path.insert(0, sys.argv[1]); import model; print(model.value)"
    done = subprocess.run(
        [sys.executable, *flags, "-c", program, str(checkout)],
        env={**inherited, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.mark.requirement("D4")
@pytest.mark.parametrize("flags", [(), ("-E",)], ids=["prefix", "environment ignored"])
def test_original_instrumented_and_restored_source_each_run_as_themselves(
    project: Any, harness: Any, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    target = project.checkout / "model.py"
    target.write_bytes(ORIGINAL)
    environment = bytecode_environment(tmp_path / "local", "c1")
    assert imported(project.checkout, {}) == "original"
    caches = list((project.checkout / "__pycache__").iterdir())
    assert len(caches) == 1
    before = caches[0].read_bytes()

    with project.transaction(
        files={"model.py": INSTRUMENTED},
        expected={"model.py": hashlib.sha256(ORIGINAL).hexdigest()},
    ):
        assert imported(project.checkout, environment, *flags) == "with sites"
        changed = caches[0].read_bytes() != before

    assert changed == bool(flags)
    assert imported(project.checkout, {}) == "original"
    assert [cache for cache in caches if b"with sites" in cache.read_bytes()] == []
    assert (tmp_path / "local" / "pycache" / "c1").exists() == (not flags)


def test_only_the_cache_of_the_instrumented_file_is_removed(tmp_path: Path) -> None:
    source = tmp_path / "mo[d]el.py"
    source.write_bytes(INSTRUMENTED)
    caches = tmp_path / "__pycache__"
    stale = caches / "mo[d]el.cpython-311.pyc"
    py_compile.compile(str(source), str(stale))
    checked = caches / "mo[d]el.hashed.pyc"
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    py_compile.compile(str(source), str(checked), invalidation_mode=mode)
    source.write_bytes(ORIGINAL)
    fitting = caches / "mo[d]el.cpython-312.pyc"
    py_compile.compile(str(source), str(fitting))
    other = caches / "model.cpython-311.pyc"
    other.write_bytes(stale.read_bytes())
    cut = caches / "mo[d]el.cpython-310.pyc"
    cut.write_bytes(b"\x00" * 7)

    remove_stale_bytecode(source, len(INSTRUMENTED))

    assert set(caches.iterdir()) == {checked, fitting, other, cut}


def test_source_without_caches_is_no_error(tmp_path: Path) -> None:
    remove_stale_bytecode(tmp_path / "missing.py", 1)
