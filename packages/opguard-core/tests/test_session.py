import json
import os
from pathlib import Path

import pytest
import torch

import opguard.core
import xorsig
from opguard.core import _site


@pytest.fixture(autouse=True)
def single_rank(monkeypatch) -> None:
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)


def receipt_of(output: Path) -> dict:
    return json.loads(xorsig.read_receipt(str(output / "capture/receipts/rank-0.receipt")))


def table(output: Path, name: str) -> list[dict]:
    polars = pytest.importorskip("polars", reason="reading Parquet in this test needs polars")
    receipt = receipt_of(output)
    tables = output.parent / "tables"
    xorsig.materialize(
        str(output / "capture/rank-0"), str(tables), capture_id=receipt["capture_id"], rank=0
    )
    return polars.read_parquet(tables / f"{name}.parquet").to_dicts()


@pytest.mark.requirement("B5")
def test_capture_leaves_batches_a_plan_and_a_receipt(tmp_path) -> None:
    with opguard.core.capture(tmp_path / "out", root=Path(__file__).parent) as session:
        double = session.observe(lambda x: x * 2, name="double")
        with session.scope("outer"):
            double(torch.ones(3))
        session.tensor("weights", torch.zeros(2))
        session.step()
        session.mark("epoch", 1)
    receipt = receipt_of(tmp_path / "out")
    plan = json.loads((tmp_path / "out/plan.json").read_text())
    assert [site["callee"] for site in plan["sites"]] == ["double", "outer", "weights"]
    assert {site["file"] for site in plan["sites"]} == {"test_session.py"}
    identity = json.loads((tmp_path / "out/capture.json").read_text())
    assert identity == {"capture_id": receipt["capture_id"], "ranks": [0]}
    assert (tmp_path / "out/sources/test_session.py").read_bytes() == Path(__file__).read_bytes()
    assert receipt["counts"] == {
        "calls": 3,
        "tensors": 4,
        "steps": 1,
        "other_thread_calls": 0,
        "recorder_failures": 0,
    }
    assert receipt["exit_kind"] == "returned"
    calls = table(tmp_path / "out", "calls")
    assert [(call["site"], call["parent"] != 0) for call in calls] == [
        (1, False),
        (0, True),
        (2, False),
    ]
    marks = table(tmp_path / "out", "marks")
    assert [(mark["kind"], mark["name"], mark["value"]) for mark in marks] == [
        (0, "", ""),
        (1, "epoch", "1"),
    ]


def test_exception_ends_the_capture_and_is_in_the_receipt(tmp_path) -> None:
    def train() -> None:
        with opguard.core.capture(tmp_path / "out") as session:
            session.tensor("x", torch.ones(1))
            raise FloatingPointError("diverged")

    with pytest.raises(FloatingPointError):
        train()
    receipt = receipt_of(tmp_path / "out")
    assert receipt["exit_kind"] == "exception"
    assert receipt["exception"]["type"] == "FloatingPointError"
    assert _site.site(0, len) is len


def test_second_session_in_one_process_is_refused(tmp_path) -> None:
    with (
        opguard.core.capture(tmp_path / "a"),
        pytest.raises(RuntimeError, match="active"),
        opguard.core.capture(tmp_path / "b"),
    ):
        pass


def test_outside_a_session_an_observed_function_is_the_function_itself(tmp_path) -> None:
    def function(x):
        return x

    with opguard.core.capture(tmp_path / "out") as session:
        inside = session.observe(function)
    assert inside is not function
    assert session.observe(function) is function


@pytest.mark.requirement("B7")
def test_output_that_holds_this_ranks_capture_is_refused(tmp_path) -> None:
    with opguard.core.capture(tmp_path / "out"):
        pass
    with pytest.raises(FileExistsError), opguard.core.capture(tmp_path / "out"):
        pass


def test_several_ranks_need_a_shared_id(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="capture_id"), opguard.core.capture(tmp_path / "out"):
        pass


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_forked_child_neither_records_nor_corrupts(tmp_path) -> None:
    with opguard.core.capture(tmp_path / "out") as session:
        observed = session.observe(torch.relu)
        observed(torch.ones(2))
        pid = os.fork()
        if pid == 0:
            code = 7 if torch.equal(observed(-torch.ones(2)), torch.zeros(2)) else 1
            session.flush()
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        observed(torch.ones(2))
    assert len(table(tmp_path / "out", "calls")) == 2


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_forked_child_that_leaves_the_block_leaves_the_capture_to_its_parent(tmp_path) -> None:
    def run_child(session: opguard.core.Session) -> int:
        pid = os.fork()
        if pid == 0:
            raise InterruptedError
        session.tensor("x", torch.ones(1))
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    try:
        with opguard.core.capture(tmp_path / "out") as session:
            session.tensor("x", torch.ones(1))
            status = run_child(session)
    except InterruptedError:
        os._exit(7)
    assert status == 7
    assert receipt_of(tmp_path / "out")["pid"] == os.getpid()
    assert len(table(tmp_path / "out", "calls")) == 2


@pytest.mark.requirement("F7")
def test_regions_of_the_environment_reach_the_records(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("OPGUARD_XOR_REGIONAL", "7")
    with opguard.core.capture(tmp_path / "out") as session:
        session.tensor("x", torch.arange(10, dtype=torch.int32))
    (inputs, outputs) = table(tmp_path / "out", "tensors")
    assert inputs["xor_sig"] == list(xorsig.region_xor(_words(10), 7))
    assert outputs["slot"] == "out"
    assert receipt_of(tmp_path / "out")["fingerprint"]["regions"] == 7


def _words(count: int) -> bytes:
    return b"".join(i.to_bytes(4, "little") for i in range(count))


def test_compiled_region_keeps_its_graph_and_is_recorded_at_its_call(tmp_path) -> None:
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()

    def function(x):
        return _site.site(3, torch.sin)(x) + _site.subscript(4, x)[0]

    with opguard.core.capture(tmp_path / "out") as session:
        compiled = session.observe(torch.compile(function, backend=counter, fullgraph=True))
        compiled(torch.ones(3))
    assert (counter.frame_count, counter.op_count) == (1, 3)
    (call,) = table(tmp_path / "out", "calls")
    assert call["flags"] & 1
