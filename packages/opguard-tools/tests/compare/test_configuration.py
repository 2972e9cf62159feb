"""Differences of how runs were started, from requests and receipts."""

from __future__ import annotations

from typing import Any

from capture_builders import Recording, view

from opguard.tools.compare import Circumstance, CircumstanceKind
from opguard.tools.compare.configuration import configuration_circumstances

FACTS: dict[str, Any] = {
    "world_size": 1,
    "host": "one",
    "pid": 1,
    "started_unix_ns": 1,
    "versions": {"python": "3.11.7", "torch": "2.4.0"},
    "fingerprint": {"schemes": ["s"], "regions": 4},
    "determinism": {"requested": False, "settings": {"cudnn.benchmark": False}},
    "environment": {"torch.num_threads": 4, "machine": "x86_64", "torch.cuda": None},
}


def found(
    left: dict[str, Any], right: dict[str, Any], ranks: tuple[int, ...] = (0,)
) -> list[Circumstance]:
    sides = [
        view(Recording(), receipts=dict.fromkeys(ranks, FACTS | facts)) for facts in (left, right)
    ]
    return configuration_circumstances(sides[0], sides[1], ranks)


def short(items: list[Circumstance]) -> list[tuple[str, str, str | None, str | None]]:
    return [(str(item.kind), item.subject, item.baseline, item.candidate) for item in items]


def test_equal_receipts_of_other_hosts_processes_and_times_are_no_circumstance() -> None:
    assert found({}, {"host": "two", "pid": 2, "started_unix_ns": 9, "capture_id": "x"}) == []


def test_each_fact_has_its_kind_and_both_values() -> None:
    candidate = {
        "world_size": 2,
        "versions": {"python": "3.11.7", "torch": "2.5.0"},
        "fingerprint": {"schemes": ["s"], "regions": 8},
        "determinism": {"requested": True, "settings": {"cudnn.benchmark": True}},
        "environment": {"torch.num_threads": 1, "machine": "aarch64", "torch.cuda": "12.4"},
    }

    assert short(found({}, candidate)) == [
        ("arguments", "world size", "1", "2"),
        ("environment", "number of fingerprint regions", "4", "8"),
        ("environment", "machine", "x86_64", "aarch64"),
        ("environment", "torch.cuda", None, "12.4"),
        ("versions", "torch", "2.4.0", "2.5.0"),
        ("threads", "torch.num_threads", "4", "1"),
        ("determinism", "OPGUARD_DETERMINISTIC", "off", "on"),
        ("determinism", "cudnn.benchmark", "off", "on"),
    ]


def test_text_says_both_values() -> None:
    (item,) = found({}, {"environment": FACTS["environment"] | {"OMP_NUM_THREADS": "2"}})

    assert item == Circumstance(
        CircumstanceKind.THREADS,
        "OMP_NUM_THREADS",
        "OMP_NUM_THREADS is not set in the baseline and 2 in the candidate",
        None,
        "2",
        ranks=(0,),
    )


def test_what_one_side_does_not_state_is_not_compared() -> None:
    older = {"environment": None, "versions": {"python": "3.11.7", "transformers": "4"}}

    assert found({}, older) == []


def test_ranks_that_show_the_same_are_one_circumstance() -> None:
    items = found({}, {"world_size": 2}, ranks=(0, 1))

    assert [item.ranks for item in items] == [(0, 1)]


def test_launched_otherwise_is_told_from_the_requests() -> None:
    def launched(**workload: Any) -> dict[str, Any]:
        return {"request": {"workload": {"script": "train.py", "launcher": ["python"], **workload}}}

    left = view(Recording(), request=launched(args=["--seed", "0"]))
    right = view(
        Recording(),
        request=launched(
            args=["--seed", "1"], script="other.py", launcher=["torchrun"], env={"A": "1"}
        ),
    )

    assert short(configuration_circumstances(left, right, [0])) == [
        ("arguments", "script", "train.py", "other.py"),
        ("arguments", "launcher", "python", "torchrun"),
        ("arguments", "--seed", "0", "1"),
        ("environment", "A", None, "1"),
    ]


def test_session_embedded_in_a_program_has_no_request_to_compare() -> None:
    left = view(Recording(), request={"request": {"workload": {"script": "train.py"}}})

    assert configuration_circumstances(left, view(Recording()), [0]) == []
