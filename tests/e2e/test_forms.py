"""Processes and control flow that trip tracers: each program does the same with and without one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opguard_e2e import COMMAND_TIMEOUT_SECONDS, Protocol, make_checkout, workload_environment

FORMS = {"control": 1, "processes": 1, "distributed": 2}
"""Programs below ``forms``, by their number of ranks. Each prints what it computed."""


def launcher(ranks: int) -> list[str]:
    if ranks == 1:
        return [sys.executable]
    torchrun = ("-m", "torch.distributed.run", "--standalone")
    return [sys.executable, *torchrun, f"--nproc-per-node={ranks}"]


def printed(log: str, expected: list[str]) -> list[str]:
    """The lines of a log that are among those expected: ranks and warnings interleave."""
    return sorted(line for line in log.splitlines() if line in expected)


@pytest.mark.requirement("B9")
@pytest.mark.parametrize("form", FORMS)
def test_form_does_the_same_under_every_action_and_does_not_differ_from_itself(
    form: str, tmp_path: Path
) -> None:
    ranks = FORMS[form]
    checkout = make_checkout(Path(__file__).parent / "forms" / form, tmp_path / "checkout")
    plain = subprocess.run(
        [*launcher(ranks), "train.py"],
        cwd=checkout.path,
        env=workload_environment(PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_SECONDS,
        check=True,
    )
    expected = sorted(plain.stdout.splitlines())
    assert len(expected) >= ranks
    protocol = Protocol(tmp_path)
    fields = protocol.launch_fields(checkout.path, "train.py", timeout_seconds=500.0)
    fields["workload"] |= {"launcher": launcher(ranks), "ranks": list(range(ranks))}

    def run(action: str, **more: Any) -> dict[str, Any]:
        result = protocol.call(action, **fields, **more)
        log = tmp_path / f"{protocol.operations}-{action}" / "workload.log"
        assert printed(log.read_text(errors="replace"), expected) == expected
        return result

    discovery = run("discover")
    plan = protocol.call("prepare", workload=fields["workload"], discovery=discovery)
    traces = [run("trace", plan=plan) for _ in range(2)]
    checkout.assert_untouched()
    compared = protocol.call(
        "compare", baseline=traces[0], candidate=traces[1], ranks=list(range(ranks))
    )
    document = json.loads(Path(compared["summary_json"]).read_text())
    assert (document["origins"], document["warnings"]) == ([], [])
    observed = document["observed"]
    # A call from which the process leaves by os._exit has no end.
    relations = observed["relations"] | {"equal": 0, "incomplete": 0}
    assert not any(relations.values())
    assert observed["relations"]["equal"] >= observed["pairs"] - 1 > 20
