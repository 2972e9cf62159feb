from __future__ import annotations

from capture_builders import Recording, align_by_callee, view

from opguard.tools.compare import Comparison, compare_captures
from opguard.tools.report.heatmap import HeatCell, HeatMap, HeatRow, heat_map
from opguard.tools.report.strips import Segment, step_bars


def compare(baseline: Recording, candidate: Recording) -> Comparison:
    left, right = view(baseline), view(candidate)
    return compare_captures(left, right, align_by_callee(left, right), [0])


def steps(count: int, differs_from: int) -> Comparison:
    sides = Recording(), Recording()
    for run, mark in zip(sides, "ab", strict=True):
        for step in range(count):
            run.step = step
            run.call("load", outputs={"out": f"x{step}"})
            run.call("loss", outputs={"out": f"{mark if step >= differs_from else ''}{step}"})
    return compare(*sides)


def test_neighbouring_columns_of_one_relation_are_one_cell() -> None:
    assert heat_map(steps(4, 2)) == HeatMap(
        columns=["0", "1", "2", "3"],
        rows=[
            HeatRow("train.py:1 load", [HeatCell(0, 4, "equal", "from step 0: 1 equal")]),
            HeatRow(
                "train.py:2 loss",
                [
                    HeatCell(0, 2, "equal", "from step 0: 1 equal"),
                    HeatCell(2, 2, "different", "from step 2: 1 different"),
                ],
                origin=True,
            ),
        ],
        hidden=0,
    )


def test_long_runs_share_columns_and_show_the_worst_relation() -> None:
    found = heat_map(steps(500, 499))

    assert (len(found.columns), found.columns[0], found.columns[-1]) == (100, "0-4", "495-499")
    assert found.rows[1].cells[-1] == HeatCell(
        99, 1, "different", "from step 495-499: 1 different, 4 equal"
    )


def test_of_many_callsites_those_that_differ_are_shown() -> None:
    sides = Recording(), Recording()
    for run, mark in zip(sides, "ab", strict=True):
        for number in range(100):
            run.call(f"f{number}", outputs={"out": mark if number == 99 else f"{number}"})

    found = heat_map(compare(*sides))

    assert ([row.label for row in found.rows], found.hidden) == (["train.py:100 f99"], 99)


def test_step_bars_stack_relations_worst_first() -> None:
    entry = {"rank": 0, "step": 3, "equal": 3, "different": 1}
    entry |= {"incompatible": 0, "unpaired": 0, "incomplete": 0}

    (bar,) = step_bars([entry])

    assert bar.title == "step 3: 1 different, 3 equal"
    assert bar.segments == [Segment("different", 0.0, 0.25), Segment("equal", 0.25, 0.75)]


def test_step_bars_sum_over_ranks_and_neighbouring_steps() -> None:
    zero = {"different": 0, "incompatible": 0, "unpaired": 0, "incomplete": 0}
    entries = [{"rank": r, "step": s, "equal": 1, **zero} for r in (0, 1) for s in range(240)]

    found = step_bars(entries)

    assert (len(found), found[0].title) == (120, "step 0-1: 4 equal")
