"""Real workloads under the real worker: scripts that fail, and sources that are hard to handle."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from opguard.tools.actions import discover, prepare, trace
from opguard.tools.launch.errors import (
    CaptureUnavailableError,
    LauncherFailedError,
    RankEmptyError,
    RankEndedError,
    RankUnexpectedError,
    ScriptExitError,
    ScriptOsExitError,
    ScriptRaisedError,
    WorkloadTimeoutError,
)
from opguard.tools.protocol.errors import OpGuardError
from opguard.tools.protocol.models import (
    DiscoverRequest,
    DiscoverResult,
    PrepareRequest,
    PrepareResult,
    TraceRequest,
    TraceResult,
)

pytest.importorskip("opguard.core", reason="workloads need opguard-core")


def run_script(scratch: Any, source: bytes, **changes: Any) -> DiscoverResult:
    (scratch.checkout / "train.py").write_bytes(source)
    fields = {"launcher": [sys.executable], "args": [], **changes}
    timeout = fields.pop("timeout_seconds", 60)
    document = {**scratch.launch(**fields), "timeout_seconds": timeout}
    return discover.run(DiscoverRequest.model_validate(document))


@pytest.mark.parametrize(
    ("source", "expected", "details"),
    [
        (
            b"def f():\n    raise ValueError('bad')\n\nf()\n",
            ScriptRaisedError,
            {"type": "ValueError", "message": "bad", "line": 2},
        ),
        (b"x = (\n", ScriptRaisedError, {"type": "SyntaxError"}),
        (b"x = '\xff'\n", ScriptRaisedError, {"type": "SyntaxError"}),
        (b"import no_such_module\n", ScriptRaisedError, {"type": "ModuleNotFoundError"}),
        (b"raise KeyboardInterrupt\n", ScriptRaisedError, {"type": "KeyboardInterrupt"}),
        (b"import sys\nsys.exit(3)\n", ScriptExitError, {"exit_status": 3}),
        (b"raise SystemExit('sorry')\n", ScriptExitError, {"exit_status": 1}),
        (b"import os\nos._exit(3)\n", ScriptOsExitError, {"exit_status": 3}),
        (b"import os\nos.kill(os.getpid(), 9)\n", RankEndedError, {"exit_status": -9}),
        (b"import os, signal\nos.kill(os.getpid(), 15)\n", RankEndedError, {"exit_status": -15}),
        (b"x = 1\n", RankEmptyError, {"rank": 0}),
    ],
    ids=lambda value: value.decode("latin-1").strip() if isinstance(value, bytes) else None,
)
def test_script_that_fails_has_an_error_that_says_how(
    scratch: Any, source: bytes, expected: type[OpGuardError], details: dict[str, Any]
) -> None:
    with pytest.raises(expected) as caught:
        run_script(scratch, source)

    facts = caught.value.details
    facts = {**facts, **facts.get("exception", {})}
    assert {name: facts[name] for name in details} == details
    assert str(scratch.folder / "out-1" / "workload.log") in caught.value.message or (
        expected is RankEmptyError
    )


@pytest.mark.requirement("B8")
def test_script_that_does_not_end_is_ended_at_the_time_limit(scratch: Any) -> None:
    with pytest.raises(WorkloadTimeoutError) as caught:
        run_script(
            scratch, b"import time\nprint('on', flush=True)\ntime.sleep(600)\n", timeout_seconds=3
        )

    assert caught.value.details == {"timeout_seconds": 3.0}


@pytest.mark.requirement("B4")
def test_rank_that_the_request_does_not_list_is_refused_by_the_worker(scratch: Any) -> None:
    with pytest.raises(RankUnexpectedError):
        run_script(scratch, b"x = 1\n", env={"RANK": "3", "WORLD_SIZE": "4"})


def test_interpreter_without_the_worker_is_a_launcher_failure(scratch: Any) -> None:
    with pytest.raises(LauncherFailedError) as caught:
        run_script(scratch, b"x = 1\n", launcher=[sys.executable, "-I", "-S"])

    assert "No module named" in caught.value.message


def test_interpreter_without_core_says_that_capture_is_unavailable(scratch: Any) -> None:
    blocked = scratch.folder / "blocked"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text("import sys\nsys.modules['opguard.core'] = None\n")

    with pytest.raises(CaptureUnavailableError):
        run_script(scratch, b"x = 1\n", env={"PYTHONPATH": str(blocked)})


MODULE = "import torch\n\n\ndef work(x):\n    y = torch.tanh(x)\n    return y * 2\n"
MODULES = {
    "crlf.py": MODULE.replace("\n", "\r\n").encode(),
    "tabs.py": MODULE.replace("    ", "\t").encode(),
    "bom.py": b"\xef\xbb\xbf" + MODULE.encode(),
    "cookie.py": b"# -*- coding: latin-1 -*-\nname = '\xe9'\n" + MODULE.encode(),
    "readonly.py": MODULE.encode(),
    "unfinished.py": MODULE.rstrip("\n").encode(),
}
SCRIPT = """\
import os
import sys

import torch

import bom, cookie, crlf, readonly, tabs, unfinished

print('{"not": "the envelope"}')
os.write(1, b"raw bytes\\n")
x = torch.ones(4)
for module in (bom, cookie, crlf, readonly, tabs, unfinished):
    x = module.work(x)
print(cookie.name, x.sum().item())
os._exit(0)
"""


class Traced(NamedTuple):
    """A checkout of difficult sources after discover, prepare and trace."""

    before: dict[str, tuple[bytes, int, int]]
    after: dict[str, tuple[bytes, int, int]]
    plan: PrepareResult
    result: TraceResult


def states(checkout: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        path.name: (path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns)
        for path in sorted(checkout.glob("*.py"))
    }


@pytest.fixture(scope="module")
def difficult(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    folder = tmp_path_factory.mktemp("difficult")
    checkout = folder / "checkout"
    checkout.mkdir()
    for name, content in MODULES.items():
        (checkout / name).write_bytes(content)
    (checkout / "train.py").write_text(SCRIPT)
    (checkout / "readonly.py").chmod(0o444)
    before = states(checkout)
    workload = {
        "cwd": str(checkout),
        "launcher": [sys.executable],
        "script": "train.py",
        "ranks": [0],
    }
    launch = {
        "protocol_version": 1,
        "local_root": str(folder / "local"),
        "timeout_seconds": 300,
        "workload": workload,
    }
    discovery = discover.run(
        DiscoverRequest.model_validate({**launch, "output": str(folder / "discover")})
    )
    plan = prepare.run(
        PrepareRequest.model_validate(
            {
                "protocol_version": 1,
                "output": str(folder / "prepare"),
                "workload": workload,
                "discovery": json.loads(discovery.model_dump_json()),
            }
        )
    )
    request = {
        **launch,
        "output": str(folder / "trace"),
        "plan": json.loads(plan.model_dump_json()),
    }
    result = trace.run(TraceRequest.model_validate(request))
    return Traced(before, states(checkout), plan, result)


@pytest.mark.requirement("D4")
@pytest.mark.requirement("D5")
def test_difficult_sources_come_back_byte_for_byte_with_mode_and_time(difficult: Traced) -> None:
    assert difficult.after == difficult.before


def test_difficult_sources_are_all_instrumented(difficult: Traced) -> None:
    assert difficult.plan.excluded == []
    assert difficult.result.instrumented_files == sorted([*MODULES, "train.py"])


@pytest.mark.requirement("A5")
def test_what_the_workload_prints_is_in_its_log(difficult: Traced) -> None:
    log = Path(difficult.result.log).read_text()
    assert '{"not": "the envelope"}\n' in log
    assert "raw bytes\n" in log


def test_workload_that_leaves_through_os_exit_with_status_zero_is_complete(
    difficult: Traced,
) -> None:
    captured = difficult.result.captured[0]
    assert (captured.exit_kind, captured.exit_status) == ("os_exit", 0)
