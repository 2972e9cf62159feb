"""``prepare`` on a checkout whose launcher is the fake one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from action_requests import prepare_request, prepared, trace_request

from opguard.tools.actions import prepare, trace
from opguard.tools.digests import sha256
from opguard.tools.launch.errors import BatchCorruptError
from opguard.tools.protocol.errors import (
    ArtifactMismatchError,
    OutputExistsError,
    PathConflictError,
    WorkloadNotFoundError,
)
from opguard.tools.source import NothingToInstrumentError
from opguard.tools.transaction import CheckoutLock, CheckoutLockedError


@pytest.mark.requirement("C1")
@pytest.mark.requirement("C2")
def test_prepare_writes_plan_and_configuration_with_their_digests(scratch: Any) -> None:
    result = prepared(scratch)

    plan = Path(result.plan).read_bytes()
    configuration = Path(result.configuration).read_bytes()
    source = (scratch.checkout / "train.py").read_bytes()
    assert sha256(plan) == result.plan_sha256
    assert sha256(configuration) == result.configuration_sha256
    assert [file.model_dump() for file in result.files] == [
        {"path": "train.py", "size": len(source), "sha256": sha256(source), "sites": 1}
    ]
    assert (result.sites, result.observed_sites, result.excluded) == (1, 1, [])
    assert result.coverage == "observed_callsites_only"
    assert json.loads(plan)["coverage"] == "observed_callsites_only"


@pytest.mark.requirement("C5")
def test_preparing_twice_gives_the_same_bytes(scratch: Any) -> None:
    discovery = scratch.discover()

    first = prepare.run(prepare_request(scratch, discovery))
    second = prepare.run(prepare_request(scratch, discovery))

    for name in ("plan", "configuration"):
        contents = [Path(getattr(result, name)).read_bytes() for result in (first, second)]
        assert contents[0] == contents[1]
        assert str(scratch.folder).encode() not in contents[0]


@pytest.mark.requirement("C4")
def test_prepare_refuses_a_plan_that_would_instrument_nothing(scratch: Any) -> None:
    discovery = scratch.discover({"spans": [{"file": "/usr/lib/elsewhere.py"}]})

    with pytest.raises(NothingToInstrumentError):
        prepare.run(prepare_request(scratch, discovery))


def test_counterpart_puts_its_callsites_into_the_plan(scratch: Any) -> None:
    (scratch.checkout / "train.py").write_text("x = 1 + 2\ny = 3 * 4\n")
    discovery = scratch.discover()
    other = scratch.folder / "other"
    shutil.copytree(scratch.checkout, other)
    there = scratch.discover({"spans": [{"span": (2, 2, 4, 9)}]}, cwd=str(other))

    result = prepare.run(
        prepare_request(
            scratch,
            discovery,
            counterpart={
                "workload": scratch.workload(cwd=str(other)),
                "discovery": json.loads(there.model_dump_json()),
            },
        )
    )

    assert (result.sites, result.observed_sites) == (2, 1)


def test_counterpart_may_be_the_same_checkout(scratch: Any) -> None:
    discovery = scratch.discover()
    document = json.loads(discovery.model_dump_json())

    result = prepare.run(
        prepare_request(
            scratch,
            discovery,
            counterpart={"workload": scratch.workload(), "discovery": document},
        )
    )

    assert result.sites == 1


def test_discovery_of_another_checkout_is_refused(scratch: Any) -> None:
    discovery = scratch.discover()
    other = scratch.folder / "other"
    shutil.copytree(scratch.checkout, other)

    with pytest.raises(ArtifactMismatchError) as caught:
        prepare.run(prepare_request(scratch, discovery, workload=scratch.workload(cwd=str(other))))

    assert caught.value.details == {"field": "discovery"}


def test_missing_counterpart_is_refused(scratch: Any) -> None:
    discovery = scratch.discover()
    counterpart = {
        "workload": scratch.workload(cwd=str(scratch.folder / "missing")),
        "discovery": json.loads(discovery.model_dump_json()),
    }

    with pytest.raises(WorkloadNotFoundError):
        prepare.run(prepare_request(scratch, discovery, counterpart=counterpart))


@pytest.mark.requirement("C1")
def test_prepare_of_a_damaged_discovery_is_refused(scratch: Any) -> None:
    discovery = scratch.discover()
    batch = Path(discovery.capture, "rank-0", "batch-00000001.xsb")
    data = bytearray(batch.read_bytes())
    data[-1] ^= 1
    batch.write_bytes(data)

    with pytest.raises(BatchCorruptError):
        prepare.run(prepare_request(scratch, discovery))


def test_prepare_of_a_removed_discovery_is_refused(scratch: Any) -> None:
    discovery = scratch.discover()
    shutil.rmtree(discovery.capture)

    with pytest.raises(BatchCorruptError):
        prepare.run(prepare_request(scratch, discovery))


@pytest.mark.requirement("D2")
def test_prepare_and_trace_refuse_a_locked_checkout(scratch: Any) -> None:
    plan = prepared(scratch)
    discovery = scratch.discover()

    with CheckoutLock(scratch.checkout, "other"):
        with pytest.raises(CheckoutLockedError):
            prepare.run(prepare_request(scratch, discovery))
        with pytest.raises(CheckoutLockedError):
            trace.run(trace_request(scratch, plan))


def test_prepare_refuses_an_output_in_the_checkout(scratch: Any) -> None:
    discovery = scratch.discover()

    with pytest.raises(PathConflictError):
        prepare.run(prepare_request(scratch, discovery, output=str(scratch.checkout / "prepared")))


@pytest.mark.requirement("B1")
def test_every_action_refuses_an_output_whose_instrument_directory_exists(scratch: Any) -> None:
    discovery = scratch.discover()
    request = prepare_request(scratch, discovery)
    os.mkdir(request.output + "-instrument")

    with pytest.raises(OutputExistsError):
        prepare.run(request)
