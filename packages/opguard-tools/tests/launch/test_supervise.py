"""The supervisor is tested in a process of its own: as a subreaper it collects every orphan."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opguard.tools.launch.supervise import forwards_signals, grace_seconds

DRIVER = Path(__file__).with_name("supervise_driver.py")


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Poll a condition of another process; the limit only matters when the test fails."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


class Driven:
    """A supervisor in a process of its own, running one Python program."""

    def __init__(self, folder: Path, program: str, **options: Any) -> None:
        self.folder = folder
        (folder / "program.py").write_text(program)
        (folder / "options.json").write_text(json.dumps(options))
        self.process = subprocess.Popen(
            [sys.executable, str(DRIVER), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> dict[str, Any]:
        stdout, self.stderr = self.process.communicate(timeout=120)
        outcome: dict[str, Any] = json.loads(stdout)
        return outcome

    def pid(self, name: str) -> int:
        """Process id that the program wrote to a file."""
        path = self.folder / name
        wait_for(lambda: path.exists() and path.read_text().endswith("\n"), name)
        return int(path.read_text())

    def log(self) -> str:
        return (self.folder / "workload.log").read_text()


GRANDCHILDREN = """
import os, signal, subprocess, sys, time
IGNORE = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
TELL = "import os,sys,time; open(sys.argv[1], 'w').write(str(os.getpid())+chr(10));"
def start(name, prefix=""):
    return subprocess.Popen([sys.executable, "-c", prefix + TELL + "time.sleep(300)", name],
                            start_new_session=True)
start("own-session")
start("stubborn", IGNORE)
# An orphan: its parent ends at once.
subprocess.run([sys.executable, "-c",
    "import subprocess,sys; subprocess.Popen([sys.executable, '-c', sys.argv[1], 'orphan'],"
    " start_new_session=True)", TELL + "time.sleep(300)"])
names = ("own-session", "stubborn", "orphan")
while not all(os.path.exists(name) and os.path.getsize(name) for name in names):
    time.sleep(0.01)
open("ready", "w").write(str(os.getpid()) + chr(10))
"""


@pytest.mark.requirement("A5")
def test_output_of_the_launcher_and_its_children_goes_to_the_log(tmp_path: Path) -> None:
    driven = Driven(
        tmp_path,
        "import os, subprocess, sys\n"
        "print('out', flush=True)\n"
        "print('err', file=sys.stderr, flush=True)\n"
        "subprocess.run([sys.executable, '-c', 'print(\"child\")'])\n"
        "os.write(1, b'raw')\n"
        "assert sys.stdin.read() == ''\n",
    )

    outcome = driven.finish()

    assert (outcome["exit_status"], outcome["ended_by"]) == (0, None)
    assert driven.log() == "out\nerr\nchild\nraw"


def test_exit_status_and_signal_of_the_launcher_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    exited = Driven(tmp_path / "a", "raise SystemExit(7)").finish()
    killed = Driven(tmp_path / "b", "import os; os.kill(os.getpid(), 9)").finish()

    assert (exited["exit_status"], exited["ended_by"]) == (7, None)
    assert (killed["exit_status"], killed["ended_by"]) == (-9, None)


@pytest.mark.requirement("B8")
def test_time_limit_ends_grandchildren_in_sessions_of_their_own(tmp_path: Path) -> None:
    driven = Driven(tmp_path, GRANDCHILDREN + "time.sleep(300)\n", timeout_after="ready", grace=1.0)

    outcome = driven.finish()

    assert outcome["ended_by"] == "timeout"
    pids = [driven.pid(name) for name in ("own-session", "stubborn", "orphan", "ready")]
    assert [is_alive(pid) for pid in pids] == [False] * 4


@pytest.mark.requirement("B8")
def test_descendants_left_by_a_launcher_that_ended_are_ended(tmp_path: Path) -> None:
    driven = Driven(tmp_path, GRANDCHILDREN, leftover=0.2)

    outcome = driven.finish()

    assert (outcome["exit_status"], outcome["ended_by"]) == (0, None)
    pids = [driven.pid(name) for name in ("own-session", "stubborn", "orphan")]
    assert [is_alive(pid) for pid in pids] == [False] * 3


@pytest.mark.requirement("B8")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_to_the_tool_ends_the_workload(tmp_path: Path, number: signal.Signals) -> None:
    driven = Driven(tmp_path, GRANDCHILDREN + "time.sleep(300)\n", grace=0.5)
    launcher = driven.pid("ready")

    driven.process.send_signal(number)
    outcome = driven.finish()

    assert outcome["ended_by"] == "interruption"
    pids = [driven.pid(name) for name in ("own-session", "stubborn", "orphan")]
    assert [is_alive(pid) for pid in [launcher, *pids]] == [False] * 4


def test_second_signal_skips_the_grace(tmp_path: Path) -> None:
    driven = Driven(tmp_path, GRANDCHILDREN + "time.sleep(300)\n", grace=3600)
    launcher = driven.pid("ready")

    driven.process.send_signal(signal.SIGTERM)
    wait_for(lambda: not is_alive(launcher), "the first signal ends the launcher")
    driven.process.send_signal(signal.SIGTERM)
    outcome = driven.finish()

    assert outcome["ended_by"] == "interruption"
    assert not is_alive(driven.pid("stubborn"))


def test_grace_lets_a_handler_finish(tmp_path: Path) -> None:
    driven = Driven(
        tmp_path,
        "import signal, time\n"
        "def stop(*_):\n"
        "    time.sleep(0.3)\n"
        "    print('saved', flush=True)\n"
        "    raise SystemExit(5)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "import os; open('ready', 'w').write(str(os.getpid()) + chr(10))\n"
        "time.sleep(300)\n",
        timeout_after="ready",
        grace=60,
    )

    outcome = driven.finish()

    assert (outcome["exit_status"], outcome["ended_by"]) == (5, "timeout")
    assert driven.log() == "saved\n"


def test_ranks_of_a_forwarding_launcher_get_the_signal_once(tmp_path: Path) -> None:
    """The launcher plays torchrun: it passes SIGTERM on to a rank in another session."""
    driven = Driven(
        tmp_path,
        "import os, signal, subprocess, sys, time\n"
        "rank = subprocess.Popen([sys.executable, '-c', '''\n"
        "import os, signal, time\n"
        'signal.signal(signal.SIGTERM, lambda *_: print("TERM", flush=True))\n'
        'open("ready", "w").write(str(os.getpid()) + chr(10))\n'
        'while not os.path.exists("stop"): time.sleep(0.01)\n'
        "'''], start_new_session=True)\n"
        "told = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: told.append(1))\n"
        "while not told: time.sleep(0.01)\n"
        "rank.send_signal(signal.SIGTERM)\n"
        "time.sleep(0.5)\n"
        "open('stop', 'w').close()\n"
        "rank.wait()\n"
        "raise SystemExit(1)\n",
        timeout_after="ready",
        grace=60,
        forwards=True,
    )

    outcome = driven.finish()

    assert (outcome["exit_status"], outcome["ended_by"]) == (1, "timeout")
    assert driven.log() == "TERM\n"


def test_heartbeats_tell_time_and_last_line(tmp_path: Path) -> None:
    driven = Driven(
        tmp_path,
        "import os, time\nprint('loss 0.5', flush=True)\n"
        "while not os.path.exists('beaten'): time.sleep(0.01)\n",
        interval=0.05,
    )

    outcome = driven.finish()

    assert outcome["heartbeats"] > 0
    assert outcome["last_line"] == "loss 0.5"


@pytest.mark.requirement("B8")
def test_process_that_survives_sigkill_is_named(tmp_path: Path) -> None:
    driven = Driven(
        tmp_path,
        GRANDCHILDREN + "time.sleep(300)\n",
        timeout_after="ready",
        grace=0.5,
        unkillable=True,
    )

    outcome = driven.finish()

    assert outcome == {"error": "processes_left", "pids": [driven.pid("stubborn")]}


def test_program_that_cannot_be_started_is_a_launcher_failure(tmp_path: Path) -> None:
    outcome = Driven(tmp_path, "", argv=["/nonexistent/program"]).finish()

    assert outcome == {"error": "launcher_failed"}


def test_signal_before_the_start_starts_nothing(tmp_path: Path) -> None:
    outcome = Driven(tmp_path, "print('ran')", interrupt_first=True).finish()

    assert outcome == {"error": "interrupted"}
    assert not (tmp_path / "workload.log").exists()


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(
    ("launcher", "grace", "forwards"),
    [
        (["python"], 10.0, False),
        (["/usr/bin/python3.11", "-X", "dev"], 10.0, False),
        (["python3.13t"], 10.0, False),
        (["torchrun", "--nproc-per-node=2"], 45.0, True),
        (["/env/bin/python", "-m", "torch.distributed.run", "--standalone"], 45.0, True),
        (["srun", "python"], 45.0, False),
        (["pythonic-launcher"], 45.0, False),
    ],
)
def test_grace_fits_the_launcher(launcher: list[str], grace: float, forwards: bool) -> None:
    assert (grace_seconds(launcher), forwards_signals(launcher)) == (grace, forwards)


def test_processes_that_were_there_before_are_left_alone(tmp_path: Path) -> None:
    driven = Driven(tmp_path, "pass", bystander=True)

    outcome = driven.finish()

    assert outcome["exit_status"] == 0
    assert outcome["bystander_alive"] is True


def test_supervised_processes_do_not_hold_the_tools_descriptors(tmp_path: Path) -> None:
    driven = Driven(tmp_path, "import os\nprint(len(os.listdir('/proc/self/fd')))\n")

    driven.finish()

    assert int(driven.log()) == 4  # stdin, stdout, stderr, and the listing's own
    assert os.path.exists(tmp_path / "workload.log")
