"""Programs that break tracers run under the worker as they run under the plain interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from opguard_e2e import COMMAND_TIMEOUT_SECONDS, workload_environment

SCRIPTS = (
    "stress_02_dtype_layout_zoo",
    "stress_04_fork_spawn_threads_os_exit",
    "stress_08_compile_breaks_recompiles",
)
"""Others run under full tracing in ``test_stress_traced.py``."""


def worker_request(folder: Path, checkout: Path) -> Path:
    """A request that runs a script under the worker without recording anything."""
    path = folder / "worker-request.json"
    document = {
        "protocol_version": 1,
        "action": "run",
        "capture_id": "0" * 32,
        "request": {"workload": {"cwd": str(checkout), "ranks": [0], "env": {}}},
        "checkout": str(checkout),
        "capture": str(folder / "capture"),
        "local_root": str(folder / "local"),
        "plan": None,
        "regions": 4,
        "deterministic": False,
    }
    path.write_text(json.dumps(document))
    return path


@pytest.mark.requirement("B3")
@pytest.mark.parametrize("name", SCRIPTS)
def test_worker_runs_script_like_the_interpreter(
    name: str, shared_root: Path, tmp_path: Path
) -> None:
    checkout = shared_root / "cases" / "stress" / name
    expected_status = json.loads((checkout / "case.json").read_text())["expected_exit_code"]
    worker = ("-m", "opguard.tools.worker", str(worker_request(tmp_path, checkout)))
    processes = [
        subprocess.Popen(
            [sys.executable, *prefix, "train.py"],
            cwd=checkout,
            env=workload_environment(
                PYTHONDONTWRITEBYTECODE="1",
                TORCHINDUCTOR_CACHE_DIR=str(tmp_path / f"compiled-{place}"),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for place, prefix in enumerate(((), worker))
    ]
    (plain_stdout, _), (stdout, stderr) = (
        process.communicate(timeout=COMMAND_TIMEOUT_SECONDS) for process in processes
    )
    plain, traced = (process.returncode for process in processes)
    assert plain == expected_status
    assert (traced, stdout) == (plain, plain_stdout), stderr


@pytest.mark.requirement("B3")
def test_worker_ends_by_the_signal_that_ends_the_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    request = worker_request(tmp_path, tmp_path)
    completed = subprocess.run(
        [sys.executable, "-m", "opguard.tools.worker", str(request), "train.py"],
        cwd=tmp_path,
        env=workload_environment(),
        capture_output=True,
        timeout=COMMAND_TIMEOUT_SECONDS,
        check=False,
    )
    assert completed.returncode == -15
