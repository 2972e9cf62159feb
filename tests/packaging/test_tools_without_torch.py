"""``opguard-tools`` alone: it installs without torch and still prepares and compares."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from opguard_e2e import EXAMPLE, Protocol, make_checkout


class Captures(NamedTuple):
    """What an installation with torch left for one without: a discovery and a trace."""

    folder: Path
    workload: dict[str, Any]
    discovery: dict[str, Any]
    trace: dict[str, Any]


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory, wheels: dict[str, Path], uv: str) -> Path:
    """Interpreter of an environment with only ``opguard-tools`` and what it requires."""
    environment = tmp_path_factory.mktemp("bare") / "venv"
    python = environment / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", str(environment)], check=True)
    built = [str(wheels["xorsig"]), str(wheels["opguard_tools"])]
    install = [uv, "pip", "install", "--quiet", "--python", str(python), "--refresh-package"]
    subprocess.run([*install, "xorsig", "--refresh-package", "opguard-tools", *built], check=True)
    return python


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Captures:
    """A discovery and a trace of the example, made where torch is installed."""
    folder = tmp_path_factory.mktemp("captures")
    checkout = make_checkout(EXAMPLE / "baseline", folder / "checkout")
    protocol = Protocol(folder)
    fields = protocol.launch_fields(checkout.path, "train.py", "--steps", "1")
    discovery, plan = protocol.discover_and_prepare(checkout.path, "train.py", "--steps", "1")
    trace = protocol.call("trace", **fields, plan=plan)
    return Captures(folder, fields["workload"], discovery, trace)


@pytest.fixture
def bare_protocol(bare_python: Path, tmp_path: Path) -> Protocol:
    """The protocol of the installation without torch."""
    return Protocol(tmp_path, command=[str(bare_python), "-m", "opguard.tools"])


def test_torch_is_not_installed_with_the_tools(bare_python: Path, uv: str) -> None:
    listed = subprocess.run(
        [uv, "pip", "list", "--quiet", "--format", "json", "--python", str(bare_python)],
        check=True,
        capture_output=True,
        text=True,
    )
    names = {entry["name"] for entry in json.loads(listed.stdout)}
    assert "opguard-tools" in names
    assert names.isdisjoint({"torch", "opguard-core"})


@pytest.mark.requirement("A1")
def test_capabilities_say_that_capture_is_unavailable_and_why(bare_python: Path) -> None:
    completed = subprocess.run(
        [str(bare_python.with_name("opguard-tools")), "capabilities"],
        check=True,
        capture_output=True,
        text=True,
    )
    result = json.loads(completed.stdout)["result"]
    assert result["capture"]["available"] is False
    assert "opguard-core" in result["capture"]["reason"]
    assert result["analysis"] == {"available": True, "reason": None}
    assert result["versions"]["torch"] is None


@pytest.mark.requirement("C1")
def test_prepare_works_without_torch(bare_protocol: Protocol, captures: Captures) -> None:
    result = bare_protocol.call("prepare", workload=captures.workload, discovery=captures.discovery)
    assert Path(result["plan"]).is_file()
    assert {entry["path"] for entry in result["files"]} >= {"rotary.py", "attention.py"}


@pytest.mark.requirement("E1")
def test_compare_works_without_torch(bare_protocol: Protocol, captures: Captures) -> None:
    result = bare_protocol.call(
        "compare", baseline=captures.trace, candidate=captures.trace, ranks=[0]
    )
    relations = result["reports"][0]["relations"]
    assert relations["equal"] > 0
    assert {**relations, "equal": 0} == dict.fromkeys(relations, 0)
    assert Path(result["reports"][0]["path"]).is_file()


def test_trace_without_torch_names_the_missing_package(
    bare_protocol: Protocol, captures: Captures
) -> None:
    fields = bare_protocol.launch_fields(Path(captures.workload["cwd"]), "train.py", "--steps", "1")
    fields["workload"]["launcher"] = [bare_protocol.command[0]]
    status, envelope = bare_protocol.attempt("discover", **fields)
    assert status != 0
    assert "opguard-core" in envelope["error"]["message"]
