"""``diff`` where a run fails, is interrupted, or cannot begin."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkout_pairs import PROGRAM, Finished, Pair

FAILING = {
    "exit": 1,
    "receipt_fields": {
        "exit_status": 1,
        "exit_kind": "exception",
        "exception": {"type": "ValueError", "message": "bad", "file": "train.py", "line": 3},
    },
}


@pytest.mark.requirement("B13")
def test_runs_that_fail_alike_are_compared_over_what_they_recorded(pair: Pair) -> None:
    pair.make()

    status, out, err = pair.diff("--json", "--output", "out", behaviour=FAILING)

    document = json.loads(out)
    assert (status, document["first"], document["endings"]["alike"]) == (0, None, True)
    assert document["observed"]["pairs"] == 2
    assert [
        (entry["side"], entry["text"], entry["recorded_to_end"])
        for entry in document["endings"]["ranks"]
    ] == [(side, "raised ValueError: bad (train.py:3)", True) for side in ("baseline", "candidate")]
    assert "[7/7] compare what was recorded: done" in err
    assert pair.sources() == [PROGRAM, PROGRAM]
    assert list(pair.temporary().iterdir()) == []


@pytest.mark.requirement("B6")
def test_every_run_that_failed_is_a_failed_step_all_the_same(pair: Pair) -> None:
    pair.make()

    pair.diff("--output", "out", behaviour=FAILING)

    for step in ("baseline-discover", "candidate-trace"):
        result = pair.folder / "out" / "steps" / step / "result.json"
        assert json.loads(result.read_text())["error"]["type"] == "script_raised"


def test_run_that_fails_on_one_side_only_is_something_to_look_at(pair: Pair) -> None:
    pair.make()
    killed = {"trace": {"kill": True, "receipt": False}}
    (pair.folder / "candidate" / "behaviour.json").write_text(json.dumps(killed))

    status, out, _ = pair.diff("--output", "out")

    assert status == 1
    assert out.splitlines()[:4] == [
        "Only the candidate did not end with success; what both recorded until then was compared.",
        "  candidate  was ended by SIGKILL; its last records may be missing",
        "",
        "No difference over 1 observed callsites, 2 tensors compared; this is not a "
        "numerical-equivalence result.",
    ]


def test_difference_before_a_failure_is_found(pair: Pair) -> None:
    pair.make(candidate=b"diff")
    (pair.folder / "candidate" / "behaviour.json").write_text(json.dumps(FAILING))

    status, out, _ = pair.diff("--json", "--output", "out")

    document = json.loads(out)
    assert (status, document["endings"]["alike"]) == (1, False)
    assert document["first"]["candidate"]["line"] == 1


NOTHING_RECORDED = FAILING | {"batches": 0}


def test_failed_script_ends_with_status_three_and_names_the_log(pair: Pair) -> None:
    pair.make()

    status, out, err = pair.diff("--json", "--output", "out", behaviour=NOTHING_RECORDED)

    document = json.loads(out)
    log = pair.folder / "out" / "baseline" / "discover" / "workload.log"
    assert (status, document["schema"]) == (3, {"name": "opguard-diff", "version": 1})
    assert sorted(document) == ["error", "schema"]
    assert document["error"]["type"] == "script_raised"
    assert "ValueError: bad (train.py:3)" in document["error"]["message"]
    assert f"Last lines of {log}:\n  | fake workload says hello" in document["error"]["message"]
    assert "script_raised" in err


def test_failure_without_json_leaves_stdout_empty(pair: Pair) -> None:
    pair.make()

    status, out, err = pair.diff("--output", "out", behaviour=NOTHING_RECORDED)

    assert (status, out) == (3, "")
    assert "script_raised" in err
    assert str(pair.folder / "out") in err


@pytest.mark.requirement("B13")
def test_incomplete_captures_are_compared_only_on_request(different: Finished, pair: Pair) -> None:
    for side in ("baseline", "candidate"):
        shutil.copytree(different.pair.folder / "out" / side / "trace", pair.folder / side)
    trace = pair.folder / "candidate"
    (trace / "result.json").unlink()
    (trace / "capture" / "receipts" / "rank-0.receipt").unlink()
    (trace / "capture" / "rank-0" / "batch-00000001.xsb").unlink()
    command = [
        *(sys.executable, "-m", "opguard.tools", "diff", "--json"),
        *("--captures", "baseline", "candidate"),
    ]

    refused = pair.start([*command, "--output", "refused"])
    refused_out, _ = refused.communicate(timeout=300)
    partial = pair.start([*command, "--partial", "--output", "partial"])
    partial_out, _ = partial.communicate(timeout=300)

    document = json.loads(partial_out)
    assert refused.returncode == 3
    assert json.loads(refused_out)["error"]["type"] == "artifact_mismatch"
    assert partial.returncode == 1
    assert [(entry["rank"], entry["side"]) for entry in document["incomplete"]] == [
        (0, "candidate")
    ]
    assert "no receipt" in document["incomplete"][0]["reason"]


def wait_for_file(path: Path) -> None:
    """Poll for a file that another process writes; the limit matters only in a failing test."""
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never appeared"
        time.sleep(0.01)


@pytest.mark.requirement("B8")
@pytest.mark.requirement("D5")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_the_running_step_and_everything_is_put_back(
    pair: Pair, number: signal.Signals
) -> None:
    pair.make()
    ready = pair.folder / "ready"
    process = pair.start(
        pair.command({"trace": {"ready": str(ready)}}, "--json", "--output", "out")
    )
    wait_for_file(ready)
    assert pair.sources()[0] != PROGRAM

    process.send_signal(number)
    out, err = process.communicate(timeout=300)

    document = json.loads(out)
    assert process.returncode == 3, err
    assert document["error"]["type"] == "interrupted"
    assert number.name in document["error"]["message"]
    assert pair.sources() == [PROGRAM, PROGRAM]
    assert not (pair.folder / "baseline" / ".opguard" / "harness-active.json").exists()
    step = pair.folder / "out" / "steps" / "baseline-trace" / "result.json"
    assert json.loads(step.read_text())["error"]["type"] == "interrupted"


def sockets(pid: int) -> list[str]:
    """Open sockets of a process and, at every depth, of its children."""
    folder = Path(f"/proc/{pid}")
    links = [os.readlink(entry) for entry in (folder / "fd").iterdir()]
    children = (folder / "task" / str(pid) / "children").read_text().split()
    own = [link for link in links if link.startswith("socket:")]
    return own + [link for child in children for link in sockets(int(child))]


@pytest.mark.requirement("A8")
def test_nothing_listens_on_a_socket_and_the_first_step_can_be_interrupted(pair: Pair) -> None:
    pair.make()
    ready = pair.folder / "ready"
    process = pair.start(pair.command({"ready": str(ready)}, "--output", "out"))
    wait_for_file(ready)

    found = sockets(process.pid)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=300)

    assert found == []
    assert (process.returncode, out) == (3, "")
    assert "interrupted: SIGTERM during baseline-discover" in err


def test_killed_step_is_reported_with_the_way_to_recover(pair: Pair) -> None:
    pair.make()
    ready = pair.folder / "ready"
    behaviour = {"trace": {"kill_parent": True, "ready": str(ready), "receipt": False}}
    process = pair.start(pair.command(behaviour, "--json", "--output", "out"))

    out, _ = process.communicate(timeout=300)

    document = json.loads(out)
    assert process.returncode == 3
    assert document["error"]["type"] == "step_ended"
    assert "recover" in document["error"]["message"]
    assert not Path(f"/proc/{ready.read_text()}").exists()
    recovered = subprocess.run(
        [sys.executable, "-m", "opguard.tools", "recover", str(pair.folder / "baseline")],
        capture_output=True,
    )
    assert recovered.returncode == 0
    assert pair.sources() == [PROGRAM, PROGRAM]


def test_output_that_cannot_be_made_is_an_error_of_the_operation(pair: Pair) -> None:
    pair.make()
    (pair.folder / "file").write_bytes(b"")

    status, out, _ = pair.diff("--json", "--output", "file/out")

    assert (status, json.loads(out)["error"]["type"]) == (3, "path_conflict")
