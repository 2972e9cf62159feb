"""Device activity: ranges around recorded calls in a trace of torch's profiler.

Machines without a device collect host operators instead, by the same ranges.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import opguard.core
import opguard.core.session
import xorsig
from opguard.core import device_activity as activities
from opguard.core.device_activity import VARIABLES, DeviceActivity, device_activity


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def host_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPGUARD_CALLSITE_CUPTI", "1")
    monkeypatch.setenv("OPGUARD_CALLSITE_CUDAAPI", "0")
    made = functools.partial(DeviceActivity, host_only=True)
    monkeypatch.setattr(opguard.core.session, "DeviceActivity", made)


def traces(output: Path) -> list[dict[str, dict[str, Any]]]:
    """The intervals of each trace by name; of equal names the first."""
    found = []
    for path in sorted((output / "capture/activity").iterdir()):
        with gzip.open(path) as file:
            rows = json.load(file)["traceEvents"]
        intervals: dict[str, dict[str, Any]] = {}
        for row in rows:
            if row["ph"] == "X" and row["ts"]:
                intervals.setdefault(row["name"], row)
        found.append(intervals)
    return found


def calls(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Names of the ranges of calls, in the order in which they began."""
    return sorted(
        (name for name in rows if name.startswith("opguard:call:")),
        key=lambda name: float(rows[name]["ts"]),
    )


def receipt_of(output: Path) -> dict[str, Any]:
    text = xorsig.read_receipt(str(output / "capture/receipts/rank-0.receipt"))
    found: dict[str, Any] = json.loads(text)
    return found


def contains(outer: dict[str, Any], inner: dict[str, Any]) -> bool:
    ends = outer["ts"] + outer["dur"] >= inner["ts"] + inner["dur"]
    return outer["tid"] == inner["tid"] and outer["ts"] <= inner["ts"] and ends


@pytest.mark.usefixtures("host_only")
def test_operators_of_a_call_lie_in_the_range_that_names_it(tmp_path: Path) -> None:
    with opguard.core.capture(tmp_path / "out", root=Path(__file__).parent) as session:
        triangle = session.observe(torch.triu)
        invert = session.observe(torch.linalg.inv)
        triangle(torch.eye(3))
        invert(torch.eye(3))
    (rows,) = traces(tmp_path / "out")
    first, second = (rows[name] for name in calls(rows))
    assert contains(first, rows["aten::triu"])
    assert contains(second, rows["aten::linalg_inv"])
    assert not contains(first, rows["aten::linalg_inv"])
    assert "opguard:own" in rows
    receipt = receipt_of(tmp_path / "out")
    assert receipt["device_activity"]["OPGUARD_CALLSITE_CUPTI"] == "collected"
    assert receipt["device_activity"]["OPGUARD_CALLSITE_CUDAAPI"] == "off"
    assert any("profiler" in effect for effect in receipt["observer_effects"])


@pytest.mark.usefixtures("host_only")
def test_a_call_that_raises_ends_its_range(tmp_path: Path) -> None:
    with opguard.core.capture(tmp_path / "out", root=Path(__file__).parent) as session:
        add = session.observe(torch.add)
        with pytest.raises(RuntimeError, match="must match"):
            add(torch.ones(2), torch.ones(3))
        torch.triu(torch.eye(3))
    (rows,) = traces(tmp_path / "out")
    (failed,) = calls(rows)
    assert not contains(rows[failed], rows["aten::triu"])


@pytest.mark.usefixtures("host_only")
def test_each_stretch_of_selected_steps_is_a_part(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with opguard.core.capture(output, root=Path(__file__).parent, steps="0,2") as session:
        triangle = session.observe(torch.triu)
        for _ in range(4):
            triangle(torch.eye(3))
            session.step()
    parts = traces(output)
    assert [[name.rsplit(":", 1)[0] for name in calls(part)] for part in parts] == [
        ["opguard:call:0"],
        ["opguard:call:0"],
    ]


@pytest.mark.usefixtures("host_only")
def test_a_program_can_start_a_profiler_of_its_own(tmp_path: Path) -> None:
    activities = [torch.profiler.ProfilerActivity.CPU]
    with opguard.core.capture(tmp_path / "out", root=Path(__file__).parent) as session:
        triangle = session.observe(torch.triu)
        triangle(torch.eye(3))
        with torch.profiler.profile(activities=activities) as own:
            triangle(torch.eye(3))
    assert "aten::triu" in {event.key for event in own.key_averages()}
    stated = receipt_of(tmp_path / "out")["device_activity"]["OPGUARD_CALLSITE_CUPTI"]
    assert stated == "collected: until the program started a profiler of its own"
    assert len(traces(tmp_path / "out")) == 1


@pytest.mark.usefixtures("host_only")
def test_a_running_profiler_of_the_program_is_left_alone(tmp_path: Path) -> None:
    activities = [torch.profiler.ProfilerActivity.CPU]
    capture = opguard.core.capture(tmp_path / "out", root=Path(__file__).parent)
    with torch.profiler.profile(activities=activities) as own, capture as session:
        session.observe(torch.triu)(torch.eye(3))
    assert "aten::triu" in {event.key for event in own.key_averages()}
    stated = receipt_of(tmp_path / "out")["device_activity"]["OPGUARD_CALLSITE_CUPTI"]
    assert stated == "unavailable: the program's own profiler was running"


@pytest.mark.usefixtures("host_only")
def test_a_profiler_that_fails_is_stated_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no counters for you")

    monkeypatch.setattr(torch.profiler, "profile", refuse)
    with opguard.core.capture(tmp_path / "out", root=Path(__file__).parent) as session:
        assert session.observe(torch.triu)(torch.ones(2, 2)).sum() == 3
    receipt = receipt_of(tmp_path / "out")
    stated = receipt["device_activity"]["OPGUARD_CALLSITE_CUPTI"]
    assert stated == "unavailable: torch's profiler failed: RuntimeError: no counters for you"
    assert receipt["counts"]["calls"] == 1


@pytest.mark.usefixtures("host_only")
def test_the_records_are_those_of_a_capture_without_activity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counts(output: Path) -> Any:
        torch.manual_seed(1)
        with opguard.core.capture(output, root=Path(__file__).parent) as session:
            layer = session.observe(torch.nn.Linear(3, 3))
            layer(torch.ones(2, 3)).sum().backward()
        return receipt_of(output)["counts"], receipt_of(output)["records"]

    collected = counts(tmp_path / "with")
    monkeypatch.setenv("OPGUARD_CALLSITE_CUPTI", "0")
    assert counts(tmp_path / "without") == collected
    assert not (tmp_path / "without/capture/activity").exists()


@pytest.mark.usefixtures("host_only")
def test_a_forked_child_leaves_the_profiler_to_its_parent(tmp_path: Path) -> None:
    with opguard.core.capture(tmp_path / "out", root=Path(__file__).parent) as session:
        add = session.observe(torch.add)
        add(torch.ones(1), 1)
        child = os.fork()
        if child == 0:
            try:
                add(torch.ones(1), 1)
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        add(torch.ones(1), 1)
    (rows,) = traces(tmp_path / "out")
    assert len(calls(rows)) == 2


@pytest.mark.requirement("B11")
@pytest.mark.parametrize(
    ("built", "driver", "reason"),
    [
        (False, False, "unavailable: this build of torch has no CUDA"),
        (False, True, "unavailable: this build of torch has no CUDA"),
        (True, False, "unavailable: this machine has no CUDA device"),
        (True, True, "unavailable: the program used no CUDA device"),
    ],
)
def test_without_a_device_nothing_is_collected_and_the_reason_is_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: bool, driver: bool, reason: str
) -> None:
    if torch.cuda.is_initialized():
        pytest.skip("this process has set a device up")
    monkeypatch.setattr(activities, "_built_for_devices", lambda: built)
    monkeypatch.setattr(activities, "_has_device", lambda: driver)
    for environment in ({}, dict.fromkeys(VARIABLES, "1")):
        activity = DeviceActivity(tmp_path / "activity", 0, environment)
        activity.call_begins()
        activity.close()
        assert activity.states() == dict.fromkeys(VARIABLES, reason)
        assert device_activity(environment) == dict.fromkeys(VARIABLES, reason)
        # Without a device the native recorder does the work.
        assert activity.wanted == (built and driver)
    assert not (tmp_path / "activity").exists()
    assert not torch.cuda.is_initialized()


@pytest.mark.requirement("B11")
def test_unset_means_on_where_the_machine_can_and_zero_turns_each_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activities, "_built_for_devices", lambda: True)
    monkeypatch.setattr(activities, "_has_device", lambda: True)
    kernels, runtime = VARIABLES
    used = "unavailable: the program used no CUDA device"
    for environment, wanted, states in (
        ({}, True, (used, used)),
        ({kernels: "0"}, True, ("off", used)),
        ({runtime: "0"}, True, (used, "off")),
        ({kernels: "0", runtime: "0"}, False, ("off", "off")),
    ):
        activity = DeviceActivity(tmp_path / "activity", 0, environment)
        assert activity.wanted == wanted
        assert tuple(activity.states().values()) == states


@pytest.mark.requirement("B11")
def test_an_unasked_collection_ends_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activities, "MAX_CALLS_UNASKED", 2)
    made = functools.partial(DeviceActivity, host_only=True)
    monkeypatch.setattr(opguard.core.session, "DeviceActivity", made)
    with opguard.core.capture(tmp_path / "out", root=Path(__file__).parent) as session:
        triangle = session.observe(torch.triu)
        for _ in range(5):
            triangle(torch.eye(3))
    (rows,) = traces(tmp_path / "out")
    receipt = receipt_of(tmp_path / "out")
    limit = "collected: until the limit of 2 recorded calls"
    assert receipt["device_activity"] == dict.fromkeys(VARIABLES, limit)
    assert (len(calls(rows)), receipt["counts"]["calls"]) == (2, 5)
