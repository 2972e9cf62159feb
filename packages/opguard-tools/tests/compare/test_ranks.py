"""Rules over several ranks."""

from __future__ import annotations

import pytest
from capture_builders import Recording, align_by_callee, view

from opguard.tools.compare import Callsite, CaptureReadError, Comparison, compare_captures
from opguard.tools.compare.ranks import is_collective
from opguard.tools.compare.records import Call


def run_rank(sites: dict[str, int], local: str, reduced: str, *, step: int = 0) -> Recording:
    run = Recording(sites=sites, step=step)
    run.call("forward", inputs={"arg[0]": "x"}, outputs={"out": local})
    run.call("dist.all_reduce", inputs={"arg[0]": local}, outputs={"arg[0]": reduced})
    run.call("step", inputs={"arg[0]": reduced}, outputs={"out": "w" + reduced})
    return run


def compare(
    baseline: list[Recording],
    candidate: list[Recording],
    operators: dict[str, list[str]] | None = None,
) -> Comparison:
    left, right = view(*baseline, operators=operators), view(*candidate, operators=operators)
    return compare_captures(left, right, align_by_callee(left, right), [0, 1])


def test_collective_with_equal_local_inputs_inherits_from_the_rank_whose_inputs_differ() -> None:
    sites: dict[str, int] = {}
    baseline = [run_rank(sites, "a", "s"), run_rank(sites, "b", "s")]
    candidate = [run_rank(sites, "a", "t"), run_rank(sites, "c", "t")]

    found = compare(baseline, candidate)

    assert found.first is not None
    assert found.first[0] == 1
    assert [len(rank.origins) for rank in found.ranks] == [0, 1]
    assert [(o.inherited_from, o.kind.value) for o in found.ranks[0].inherited] == [
        (1, "outputs_differ")
    ]


def test_collective_whose_inputs_agree_on_every_rank_is_an_origin() -> None:
    sites: dict[str, int] = {}
    baseline = [run_rank(sites, "a", "s"), run_rank(sites, "b", "s")]
    candidate = [run_rank(sites, "a", "t"), run_rank(sites, "b", "t")]

    found = compare(baseline, candidate)

    assert [len(rank.origins) for rank in found.ranks] == [1, 1]
    assert [len(rank.inherited) for rank in found.ranks] == [0, 0]


def test_call_under_which_discovery_saw_collectives_inherits_too() -> None:
    sites: dict[str, int] = {}

    def rank(local: str, reduced: str) -> Recording:
        run = Recording(sites=sites)
        run.call("forward", inputs={"arg[0]": "x"}, outputs={"out": local})
        run.call("loss.backward", inputs={"self": local}, after={"grad.param.w": reduced})
        return run

    found = compare(
        [rank("a", "s"), rank("b", "s")],
        [rank("a", "t"), rank("c", "t")],
        operators={"loss.backward": ["c10d.allreduce_.default"]},
    )

    assert found.first is not None
    assert (found.first[0], [len(rank.origins) for rank in found.ranks]) == (1, [0, 1])


def test_first_is_the_earliest_step_over_ranks() -> None:
    sites: dict[str, int] = {}

    def rank(first_difference: int, mark: str) -> Recording:
        run = Recording(sites=sites)
        for step in range(3):
            run.step = step
            run.call("forward", outputs={"out": mark if step == first_difference else f"{step}"})
        return run

    found = compare([rank(2, "a"), rank(1, "b")], [rank(2, "c"), rank(1, "d")])

    assert found.first is not None
    assert (found.first[0], found.first[1].step) == (1, 1)


def test_an_earlier_step_comes_first_even_after_more_calls() -> None:
    sites: dict[str, int] = {}

    def rank(first_difference: int, mark: str, *, chatty: bool) -> Recording:
        run = Recording(sites=sites)
        for step in range(3):
            run.step = step
            for number in range(9 if chatty else 0):
                run.call("log", outputs={"out": f"l{number}"})
            run.call("forward", outputs={"out": mark if step == first_difference else f"{step}"})
        return run

    found = compare(
        [rank(2, "a", chatty=False), rank(1, "b", chatty=True)],
        [rank(2, "c", chatty=False), rank(1, "d", chatty=True)],
    )

    assert found.first is not None
    assert (found.first[0], found.first[1].step) == (1, 1)


def test_equal_positions_go_to_the_lower_rank() -> None:
    sites: dict[str, int] = {}
    baseline = [run_rank(sites, "a", "s"), run_rank(sites, "a", "s")]
    candidate = [run_rank(sites, "b", "t"), run_rank(sites, "b", "t")]

    found = compare(baseline, candidate)

    assert found.first is not None
    assert found.first[0] == 0


@pytest.mark.requirement("E1")
def test_a_rank_that_a_side_lacks_is_refused() -> None:
    sites: dict[str, int] = {}
    left = view(run_rank(sites, "a", "s"), run_rank(sites, "a", "s"))
    right = view(run_rank(sites, "a", "s"))

    with pytest.raises(CaptureReadError) as caught:
        compare_captures(left, right, align_by_callee(left, right), [0, 1])

    assert caught.value.details == {"rank": 1}


@pytest.mark.parametrize(
    ("callee", "operators", "expected"),
    [
        ("dist.all_reduce", (), True),
        ("torch.distributed.broadcast", (), True),
        ("x.gather", ("aten.gather.default",), False),
        ("model", ("aten.mm.default", "_c10d_functional.all_gather_into_tensor"), True),
        ("print", (), False),
    ],
)
def test_collectives_are_known_by_operator_or_module(
    callee: str, operators: tuple[str, ...], expected: bool
) -> None:
    site = Callsite(0, "a.py", 1, 1, 0, 1, "f", "call", callee, "", (1, 0), 0, "call", operators)
    call = Call(1, 0, 0, 0, 0, 0, 0, callee, 1, 2, None)

    assert is_collective(call, site) is expected
