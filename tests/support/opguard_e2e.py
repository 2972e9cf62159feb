"""Helpers of the tests that cross packages: scratch checkouts and the real command."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples" / "char_gpt"
COMMAND_TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class FileState:
    """What must be the same before and after an operation on a checkout."""

    sha256: str
    mtime_ns: int
    mode: int


def file_states(checkout: Path) -> dict[str, FileState]:
    """State of every file by relative path, less git's own and the tool's diagnostics."""
    return {
        str(path.relative_to(checkout)): FileState(
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
            path.stat().st_mode,
        )
        for path in sorted(checkout.rglob("*"))
        if path.is_file() and path.relative_to(checkout).parts[0] not in {".git", ".opguard"}
    }


def git(checkout: Path, *arguments: str) -> str:
    """Run git in a checkout, apart from the configuration of the machine."""
    environment = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@localhost")
    return subprocess.run(
        ["git", *identity, "-C", str(checkout), *arguments],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


@dataclass(frozen=True)
class Checkout:
    """A copy of a training program under version control, with its state at the start."""

    path: Path
    states: Mapping[str, FileState]

    def assert_untouched(self) -> None:
        """Bytes, modification times and modes are the first ones, and git sees no change."""
        assert file_states(self.path) == self.states
        assert git(self.path, "status", "--porcelain") == ""
        assert not (self.path / ".opguard" / "harness-active.json").exists()


def make_checkout(source: Path, destination: Path) -> Checkout:
    """Copy a program into a fresh git repository and commit it."""
    shutil.copytree(
        source, destination, ignore=shutil.ignore_patterns(".git", "__pycache__", ".opguard")
    )
    git(destination, "init", "--quiet")
    git(destination, "add", "--all")
    git(destination, "commit", "--quiet", "--message", "start")
    return Checkout(destination, file_states(destination))


def workload_environment(**variables: str) -> dict[str, str]:
    """The caller's environment with one computing thread."""
    return os.environ | {"OMP_NUM_THREADS": "1"} | variables


def tool_command(*arguments: str) -> list[str]:
    """Argument vector of the command line under the interpreter of the tests."""
    return [sys.executable, "-m", "opguard.tools", *arguments]


def run_tool(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line and return what it printed."""
    options.setdefault("env", workload_environment())
    return subprocess.run(
        tool_command(*arguments),
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_SECONDS,
        check=False,
        **options,
    )


def run_diff(
    baseline: Path,
    candidate: Path,
    output: Path,
    *script_arguments: str,
    ranks: int = 1,
    launcher: str | None = None,
) -> tuple[int, dict[str, Any]]:
    """Exit status and document of ``opguard-tools diff --json``."""
    launch = () if ranks == 1 else ("--nproc", str(ranks))
    if launcher is not None:
        launch = ("--launcher", launcher)
    completed = run_tool(
        *("diff", "--json", *launch),
        *("--baseline", str(baseline), "--candidate", str(candidate)),
        *("--output", str(output), "--", *script_arguments),
    )
    assert completed.returncode in (0, 1), completed.stderr
    return completed.returncode, json.loads(completed.stdout)


@dataclass
class Protocol:
    """The automation protocol on one scratch folder, with a fresh output per operation."""

    folder: Path
    command: Sequence[str] = field(default_factory=tool_command)
    operations: int = 0

    def write_request(self, action: str, **fields: Any) -> Path:
        """Write a request file with a fresh output folder and return its path."""
        self.operations += 1
        name = f"{self.operations}-{action}"
        request = {"protocol_version": 1, "output": str(self.folder / name), **fields}
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(request))
        return path

    def argv(self, action: str, request: Path) -> list[str]:
        """Argument vector of an action."""
        return [*self.command, action, "--request", str(request)]

    def attempt(self, action: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        """Exit status and envelope of an action that may fail."""
        request = self.write_request(action, **fields)
        completed = subprocess.run(
            self.argv(action, request),
            env=workload_environment(),
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_SECONDS,
            check=False,
        )
        assert completed.stdout, completed.stderr
        return completed.returncode, json.loads(completed.stdout)

    def call(self, action: str, **fields: Any) -> dict[str, Any]:
        """Result of an action that must succeed."""
        status, envelope = self.attempt(action, **fields)
        assert envelope.get("ok") is True, envelope
        assert status == 0
        return dict(envelope["result"])

    def launch_fields(
        self, checkout: Path, script: str, *arguments: str, timeout_seconds: float = 300.0
    ) -> dict[str, Any]:
        """The fields that ``discover`` and ``trace`` have in common, for one rank."""
        return {
            "local_root": str(self.folder / "local"),
            "timeout_seconds": timeout_seconds,
            "workload": {
                "cwd": str(checkout),
                "launcher": [sys.executable],
                "script": script,
                "args": list(arguments),
                "env": {},
                "ranks": [0],
            },
        }

    def discover_and_prepare(
        self, checkout: Path, script: str, *arguments: str
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Results of ``discover`` and ``prepare`` on a checkout."""
        fields = self.launch_fields(checkout, script, *arguments)
        discovery = self.call("discover", **fields)
        return discovery, self.call("prepare", workload=fields["workload"], discovery=discovery)
