"""One test per pairing rule, each on a hand-made capture."""

from __future__ import annotations

from capture_builders import BACKWARD, Recording, align_by_callee, view

from opguard.tools.compare import RankComparison, compare_captures

Pair = tuple[str, str]


def compare(baseline: Recording, candidate: Recording, **changed: int) -> RankComparison:
    left, right = view(baseline), view(candidate)
    return compare_captures(left, right, align_by_callee(left, right, changed), [0]).ranks[0]


def names(found: RankComparison, baseline: Recording, candidate: Recording) -> list[Pair]:
    """Callee and call number of each pair's two sides."""
    return [
        (
            f"{v.pair.baseline.callee}{v.pair.baseline.id}",
            f"{v.pair.candidate.callee}{v.pair.candidate.id}",
        )
        for v in found.pairs
    ]


def unpaired(found: RankComparison) -> list[tuple[str, str]]:
    return [(u.side.value, u.call.callee) for u in found.unpaired]


def test_one_call_less_per_step_leaves_all_others_paired() -> None:
    baseline, candidate = Recording(), Recording()
    for run in (baseline, candidate):
        for step in range(3):
            run.step = step
            run.call("forward", outputs={"out": f"f{step}"})
            if run is baseline:
                run.call("log", outputs={"out": f"l{step}"})
            run.call("backward", outputs={"out": f"b{step}"})

    found = compare(baseline, candidate)

    assert len(found.pairs) == 6
    assert unpaired(found) == [("baseline", "log")] * 3
    assert {verdict.relation.value for verdict in found.pairs} == {"equal"}


def test_children_are_paired_below_their_paired_parents_only() -> None:
    sides = Recording(), Recording()
    for run, outer in zip(sides, (("a", "b"), ("b", "a")), strict=True):
        for name in outer:
            with run.nest(name, outputs={"out": name}):
                run.call("helper", inputs={"arg[0]": name}, outputs={"out": "h" + name})

    found = compare(*sides)

    assert len(found.pairs) == 4
    assert {verdict.relation.value for verdict in found.pairs} == {"equal"}


def test_a_call_repeated_less_often_pairs_from_the_start() -> None:
    baseline, candidate = Recording(), Recording()
    for run, layers in ((baseline, 3), (candidate, 2)):
        for layer in range(layers):
            run.call("layer", outputs={"out": f"x{layer}"})

    found = compare(baseline, candidate)

    assert names(found, baseline, candidate) == [("layer1", "layer1"), ("layer2", "layer2")]
    assert unpaired(found) == [("baseline", "layer")]


def test_phases_are_aligned_apart() -> None:
    baseline, candidate = Recording(), Recording()
    for run, order in ((baseline, (0, 1, 0, 1)), (candidate, (0, 0, 1, 1))):
        for phase in order:
            run.call("op", outputs={"out": f"{phase}"}, phase=phase)

    found = compare(baseline, candidate)

    assert len(found.pairs) == 4
    assert {v.pair.baseline.phase for v in found.pairs} == {0, BACKWARD}
    assert all(v.pair.baseline.phase == v.pair.candidate.phase for v in found.pairs)
    assert {verdict.relation.value for verdict in found.pairs} == {"equal"}


def test_step_labels_that_drifted_apart_do_not_leave_calls_unpaired() -> None:
    baseline, candidate = Recording(), Recording()
    for run, offset in ((baseline, 0), (candidate, 1)):
        run.call("init", outputs={"out": "i"})
        for step in range(4):
            run.step = step + offset
            run.call("forward", outputs={"out": f"f{step}"})

    found = compare(baseline, candidate)

    assert (len(found.pairs), unpaired(found)) == (5, [])
    assert {verdict.relation.value for verdict in found.pairs} == {"equal"}
    assert [v.source.value for v in found.pairs] == ["exact"] + ["inferred"] * 4
    assert found.pairs[1].pair.reason.endswith("step 0 against 1")


def test_step_labels_decide_between_equally_good_alignments() -> None:
    baseline, candidate = Recording(), Recording()
    for run, counts in ((baseline, (2, 2)), (candidate, (1, 2))):
        for step, count in enumerate(counts):
            run.step = step
            for number in range(count):
                run.call("micro", outputs={"out": f"{step}.{number}"})
        run.call("left" if run is baseline else "right")

    found = compare(baseline, candidate)

    assert len(found.pairs) == 3
    assert [v.pair.candidate.step for v in found.pairs] == [0, 1, 1]
    assert {verdict.relation.value for verdict in found.pairs} == {"equal"}


def test_calls_of_another_thread_are_aligned_apart_whatever_its_number() -> None:
    baseline, candidate = Recording(), Recording()
    for run, order, worker in ((baseline, "mwmw", 40), (candidate, "mmww", 99)):
        for place in order:
            thread = 1 if place == "m" else worker
            run.call("op", outputs={"out": place}, thread=thread)

    found = compare(baseline, candidate)

    assert len(found.pairs) == 4
    assert all(v.pair.baseline.thread == v.pair.candidate.thread for v in found.pairs)
    assert {verdict.relation.value for verdict in found.pairs} == {"equal"}


def test_everything_below_an_unpaired_call_is_unpaired() -> None:
    baseline, candidate = Recording(), Recording()
    with baseline.nest("extra"):
        baseline.call("inner", outputs={"out": "i"})
    candidate.call("other", outputs={"out": "o"})

    assert unpaired(compare(baseline, candidate)) == [
        ("candidate", "other"),
        ("baseline", "extra"),
        ("baseline", "inner"),
    ]


def test_a_loop_moved_into_a_function_is_looked_through() -> None:
    baseline, candidate = Recording(), Recording()
    with candidate.nest("train_epoch"):
        candidate.call("forward", inputs={"arg[0]": "x"}, outputs={"out": "y"})
        candidate.call("loss", inputs={"arg[0]": "y"}, outputs={"out": "m"})
    baseline.call("forward", inputs={"arg[0]": "x"}, outputs={"out": "y"})
    baseline.call("loss", inputs={"arg[0]": "y"}, outputs={"out": "l"})

    found = compare(baseline, candidate)

    assert names(found, baseline, candidate) == [("forward1", "forward2"), ("loss2", "loss3")]
    assert unpaired(found) == [("candidate", "train_epoch")]
    assert {verdict.source.value for verdict in found.pairs} == {"inferred"}
    assert [origin.kind.value for origin in found.origins] == ["outputs_differ"]


def test_a_renamed_entry_point_is_looked_through_on_both_sides() -> None:
    sides = Recording(), Recording()
    for run, entry in zip(sides, ("main", "run"), strict=True):
        with run.nest(entry):
            run.call("forward", inputs={"arg[0]": "x"}, outputs={"out": "y"})

    found = compare(*sides)

    assert names(found, *sides) == [("forward2", "forward2")]
    assert sorted(unpaired(found)) == [("baseline", "main"), ("candidate", "run")]


def test_a_shared_helper_inside_unpaired_calls_is_not_paired_by_chance() -> None:
    sides = Recording(), Recording()
    for run, entry in zip(sides, ("log", "clip"), strict=True):
        run.call("forward", inputs={"arg[0]": "x"}, outputs={"out": "y"})
        with run.nest(entry):
            run.call("norm", inputs={"arg[0]": entry}, outputs={"out": "n" + entry})

    found = compare(*sides)

    assert names(found, *sides) == [("forward1", "forward1")]
    assert found.origins == []


def test_a_call_moved_within_a_step_is_paired_by_its_values() -> None:
    baseline, candidate = Recording(), Recording()
    for run, order in ((baseline, ("init", "load")), (candidate, ("load", "init"))):
        for name in order:
            run.call(name, inputs={"arg[0]": "a" + name}, outputs={"out": name})

    found = compare(baseline, candidate)

    assert (len(found.pairs), unpaired(found)) == (2, [])
    assert sorted(verdict.source.value for verdict in found.pairs) == ["exact", "inferred"]


def test_each_moved_call_is_paired_once() -> None:
    baseline, candidate = Recording(), Recording()
    baseline.call("init", outputs={"out": "i"})
    baseline.call("init", outputs={"out": "i"})
    for run in (baseline, candidate):
        run.call("load", outputs={"out": "l"})
        run.call("warm", outputs={"out": "w"})
    candidate.call("init", outputs={"out": "i"})

    found = compare(baseline, candidate)

    assert (len(found.pairs), unpaired(found)) == (3, [("baseline", "init")])


def test_a_moved_call_that_gives_nothing_stays_unpaired() -> None:
    baseline, candidate = Recording(), Recording()
    for run, order in (
        (baseline, ("print", "load", "warm")),
        (candidate, ("load", "warm", "print")),
    ):
        for name in order:
            run.call(name, outputs={} if name == "print" else {"out": name})

    assert sorted(unpaired(compare(baseline, candidate))) == [
        ("baseline", "print"),
        ("candidate", "print"),
    ]


def test_a_moved_call_that_gives_another_value_stays_unpaired() -> None:
    baseline, candidate = Recording(), Recording()
    for run, order in ((baseline, ("init", "load")), (candidate, ("load", "init"))):
        for name in order:
            run.call(name, inputs={"arg[0]": "a"}, outputs={"out": f"{order[0]}{name}"})

    assert len(compare(baseline, candidate).unpaired) == 2


def test_a_moved_statement_is_paired_by_its_values() -> None:
    baseline, candidate = Recording(), Recording()
    baseline.call("resize", inputs={"param.w": "w"}, outputs={"out": "r"})
    baseline.call("optimizer", outputs={"out": "=o"})
    candidate.call("optimizer", outputs={"out": "=o"})
    candidate.call("resize", inputs={"param.w": "w"}, outputs={"out": "r"})
    left, right = view(baseline), view(candidate)
    alignment = align_by_callee(left, right)
    for number, (statements, place) in enumerate(
        ((alignment.baseline, ("train.py", 1, 0)), (alignment.candidate, ("train.py", 2, 0)))
    ):
        key = statements[place]
        statements[place] = type(key)("changed", number)  # type: ignore[index]

    found = compare_captures(left, right, alignment, [0]).ranks[0]

    assert (len(found.pairs), unpaired(found)) == (2, [])


def test_calls_in_a_changed_statement_pair_by_callee_and_say_so() -> None:
    sides = Recording(), Recording()
    for run in sides:
        run.call("linear", inputs={"arg[0]": "x"}, outputs={"out": "y"})

    found = compare(*sides, linear=1)

    assert [verdict.source.value for verdict in found.pairs] == ["inferred"]
    assert found.pairs[0].pair.reason == ("the statement changed; callee linear is on both sides")


def test_calls_of_the_same_statement_are_exact() -> None:
    sides = Recording(), Recording()
    for run in sides:
        run.call("linear", inputs={"arg[0]": "x"}, outputs={"out": "y"})

    pair = compare(*sides).pairs[0]

    assert (pair.source.value, pair.pair.reason) == (
        "exact",
        "same statement, callee and ordinal",
    )


def test_operator_records_pair_by_operator_below_their_callsite() -> None:
    sides = Recording(), Recording()
    for run, prefix in zip(sides, ("/a/site-packages/", "/b/lib/site-packages/"), strict=True):
        with run.nest("trainer"):
            for operator in ("aten.mm.default", "aten.relu.default"):
                run.call(
                    "trainer",
                    outputs={"out": operator},
                    flags=16,
                    name=f"{operator}@{prefix}lib/layer.py:7",
                )

    found = compare(*sides)

    assert len(found.pairs) == 3
    assert [verdict.source.value for verdict in found.pairs] == ["exact"] * 3
