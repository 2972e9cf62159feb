"""``diff`` as a program, on checkouts whose launcher is the fake one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

FAKE_LAUNCHER = Path(__file__).parents[1] / "launch" / "fake_launcher.py"
PROGRAM = "x = 1 + 2\n"


@dataclass
class Pair:
    """Two checkouts of one program; ``value.txt`` decides the fake run's outputs."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def make(self, baseline: bytes = b"same", candidate: bytes = b"same") -> None:
        for side, value in (("baseline", baseline), ("candidate", candidate)):
            (self.folder / side).mkdir()
            (self.folder / side / "train.py").write_text(PROGRAM)
            (self.folder / side / "value.txt").write_bytes(value)

    def command(self, behaviour: dict[str, Any] | None, *options: str) -> list[str]:
        return [
            *(sys.executable, "-m", "opguard.tools", "diff"),
            *("--baseline", "baseline", "--candidate", "candidate"),
            *("--launcher", f"{sys.executable} {FAKE_LAUNCHER}"),
            *options,
            *("--", json.dumps(behaviour or {})),
        ]

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=os.environ | {"TMPDIR": str(self.temporary())} | self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def diff(self, *options: str, behaviour: dict[str, Any] | None = None) -> tuple[int, str, str]:
        process = self.start(self.command(behaviour, *options))
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def temporary(self) -> Path:
        folder = self.folder / "temporary"
        folder.mkdir(exist_ok=True)
        return folder

    def sources(self) -> list[str]:
        return [(self.folder / side / "train.py").read_text() for side in ("baseline", "candidate")]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


@dataclass
class Finished:
    """A pair after ``diff --json --output out``."""

    pair: Pair
    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document


@pytest.fixture(scope="module")
def equal(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    made = Pair(tmp_path_factory.mktemp("equal"))
    made.make()
    return Finished(made, *made.diff("--json", "--output", "out"))


@pytest.fixture(scope="module")
def different(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    made = Pair(tmp_path_factory.mktemp("different"))
    made.make(candidate=b"diff")
    return Finished(made, *made.diff("--json", "--output", "out"))


def test_equal_checkouts_end_with_status_zero(equal: Finished) -> None:
    document = equal.document
    assert (equal.status, document["origins"], document["first"]) == (0, [], None)
    assert (document["schema"], document["verdict"]) == (
        {"name": "opguard-diff", "version": 1},
        "not_evaluated",
    )
    assert equal.pair.sources() == [PROGRAM, PROGRAM]


def test_json_is_the_only_thing_on_stdout(equal: Finished) -> None:
    assert equal.out.count("\n") == 1
    assert "fake workload" not in equal.out


@pytest.mark.requirement("A7")
def test_every_step_is_a_process_whose_request_and_result_are_kept(equal: Finished) -> None:
    steps = equal.pair.folder / "out" / "steps"
    assert sorted(path.name for path in steps.iterdir()) == [
        "baseline-discover",
        "baseline-prepare",
        "baseline-trace",
        "candidate-discover",
        "candidate-prepare",
        "candidate-trace",
        "compare",
    ]
    for step in steps.iterdir():
        assert json.loads((step / "result.json").read_text())["ok"] is True
        assert json.loads((step / "request.json").read_text())["protocol_version"] == 1


def test_progress_goes_to_stderr_and_says_that_sources_are_instrumented(equal: Finished) -> None:
    assert "instrumented in place" in equal.err
    assert "[7/7] compare: done" in equal.err


def test_temporary_staging_is_removed_after_success(equal: Finished) -> None:
    assert list(equal.pair.temporary().iterdir()) == []


def test_difference_ends_with_status_one_and_names_both_lines(different: Finished) -> None:
    document = different.document
    assert different.status == 1
    assert document["first"] == document["origins"][0]
    places = [document["first"][side] for side in ("baseline", "candidate")]
    assert [(place["file"], place["line"]) for place in places] == [("train.py", 1)] * 2


def test_text_for_people_names_the_line_and_the_report_files(pair: Pair) -> None:
    pair.make(candidate=b"diff")

    status, out, _ = pair.diff()

    (output,) = pair.folder.glob("opguard-diff-*")
    assert status == 1
    assert "train.py:1" in out
    assert str(output / "compare" / "report.html") in out


def test_one_checkout_can_be_compared_with_itself(pair: Pair) -> None:
    pair.make()
    command = pair.command(None, "--json", "--output", "out")
    command[command.index("candidate")] = "baseline"

    process = pair.start(command)
    out, _ = process.communicate(timeout=300)

    assert process.returncode == 0
    assert json.loads(out)["first"] is None


@pytest.mark.requirement("B13")
def test_captures_of_an_earlier_diff_can_be_compared_again(different: Finished) -> None:
    process = different.pair.start(
        [
            *(sys.executable, "-m", "opguard.tools", "diff", "--json"),
            *("--captures", "out/baseline", "out/candidate", "--output", "again"),
        ]
    )
    out, err = process.communicate(timeout=300)

    assert process.returncode == 1, err
    assert json.loads(out)["origins"] == different.document["origins"]
    assert (different.pair.folder / "again" / "compare" / "report.html").is_file()


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    made = Pair(tmp_path_factory.mktemp("repeated"))
    made.make(candidate=b"diff")
    return Finished(made, *made.diff("--json", "--output", "out", "--repeat", "1"))


def test_repeat_traces_the_baseline_again_and_counts_its_steps(repeated: Finished) -> None:
    found = repeated.document["repeatability"]
    request = repeated.pair.folder / "out" / "steps" / "baseline-repeat-1" / "request.json"

    assert repeated.status == 1
    assert (found["runs"], found["differing_runs"], found["callsites"]) == (1, 0, [])
    assert repeated.document["not_repeatable"] == []
    assert json.loads(request.read_text())["output"].endswith("out/baseline/repeat-1")
    assert "[7/8] baseline: repeat-1: done" in repeated.err
    assert "[8/8] compare: done" in repeated.err
    assert repeated.pair.sources() == [PROGRAM, PROGRAM]


def compare_captures_again(pair: Pair, output: str, *options: str) -> tuple[int, dict[str, Any]]:
    command = [*(sys.executable, "-m", "opguard.tools", "diff", "--json", "--output", output)]
    process = pair.start([*command, "--captures", "out/baseline", "out/candidate", *options])
    out, _ = process.communicate(timeout=300)
    return process.returncode, json.loads(out)


def test_existing_captures_take_repeats_too(repeated: Finished) -> None:
    status, document = compare_captures_again(
        repeated.pair, "again", "--repeats", "out/baseline/repeat-1", "out/baseline"
    )

    assert (status, document["repeatability"]["runs"]) == (1, 2)
    assert document["origins"] == repeated.document["origins"]


def test_repeat_of_another_workload_is_refused(repeated: Finished) -> None:
    other = repeated.pair.folder / "other"
    shutil.copytree(repeated.pair.folder / "out" / "baseline" / "repeat-1", other)
    path = other / "worker-request.json"
    request = json.loads(path.read_text())
    request["request"]["workload"]["args"] += ["--seed", "1"]
    path.write_text(json.dumps(request))

    status, document = compare_captures_again(repeated.pair, "refused", "--repeats", "other")

    assert (status, document["error"]["type"]) == (3, "repeat_unequal")
    assert "--seed" in document["error"]["message"]


def test_arguments_that_differ_are_named_and_are_no_origin(equal: Finished) -> None:
    folder = equal.pair.folder
    shutil.copytree(folder / "out" / "baseline" / "trace", folder / "seeded")
    path = folder / "seeded" / "worker-request.json"
    request = json.loads(path.read_text())
    request["request"]["workload"]["args"] += ["--seed", "1"]
    path.write_text(json.dumps(request))
    process = equal.pair.start(
        [
            *(sys.executable, "-m", "opguard.tools", "diff"),
            *("--captures", "out/baseline", "seeded", "--output", "circumstances"),
        ]
    )
    out, _ = process.communicate(timeout=300)

    assert process.returncode == 0
    assert out.splitlines()[:2] == [
        "The runs differ in their circumstances; no recorded value differs.",
        "  arguments      --seed is not set in the baseline and 1 in the candidate",
    ]


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
