"""The random stream and the data, as distinct from an operation that differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl
from capture_builders import Recording, align_by_callee, view

from opguard.tools.compare import Circumstance, Comparison, RankTables, compare_captures
from opguard.tools.compare.capture import CaptureView


def compare(
    baseline: Recording, candidate: Recording, incomplete: dict[int, str] | None = None
) -> Comparison:
    left, right = view(baseline), view(candidate, incomplete=incomplete)
    return compare_captures(left, right, align_by_callee(left, right), [0])


def both(record: Callable[[Recording, str], None]) -> Comparison:
    """Compare two recordings of one function, which is told the side as ``a`` or ``b``."""
    sides = Recording(), Recording()
    for run, side in zip(sides, "ab", strict=True):
        record(run, side)
    return compare(*sides)


def short(comparison: Comparison) -> list[tuple[str, str, int | None, bool]]:
    return [
        (str(item.kind), item.subject, item.step, item.before_first)
        for item in comparison.circumstances
    ]


def loop(run: Recording, items: Sequence[str], *, ends: bool = True) -> None:
    """A loop over a loader that uses each item, one step per item."""
    for step, item in enumerate(items):
        run.step = step
        run.item("loader", item)
        run.call("model", inputs={"arg[0]": item}, outputs={"out": f"y{item}"})
    if ends:
        run.item("loader", None)


def test_equal_runs_have_no_circumstances() -> None:
    found = both(lambda run, _: loop(run, ["x0", "x1"]))

    assert (found.circumstances, found.first) == ([], None)


def test_other_seed_shows_as_a_random_stream_that_differs_from_its_first_use() -> None:
    def record(run: Recording, side: str) -> None:
        run.call("rand", outputs={"out": f"r{side}"}, rng={"rng.torch": (f"{side}0", f"{side}1")})

    found = both(record)

    (item,) = found.circumstances
    assert short(found) == [("random_stream", "rng.torch", 0, True)]
    assert (item.baseline, item.candidate) == ("a0", "b0")
    assert item.text == (
        "rng.torch is in another state where train.py:1 `rand(...)` draws; it differs from its "
        "first recorded use on: another seed, or draws before that were not recorded"
    )


def test_last_call_that_found_the_stream_equal_is_named() -> None:
    def record(run: Recording, side: str) -> None:
        run.call("init", outputs={"out": "w"}, rng={"rng.torch": ("s0", "s1")})
        run.call("noise", outputs={"out": f"n{side}"}, rng={"rng.torch": (f"{side}1", "z")})

    (item,) = both(record).circumstances

    assert item.text == (
        "rng.torch is in another state where train.py:2 `noise(...)` draws; it was last found in "
        "the same state by train.py:1 `init(...)`"
    )


def test_call_that_seeds_the_generator_inside_does_not_show_its_state_before() -> None:
    def record(run: Recording, side: str) -> None:
        with run.nest("main", rng={"rng.torch": (f"unseeded {side}", "s2")}):
            run.call("rand", outputs={"out": "r"}, rng={"rng.torch": ("s0", "s1")})

    assert both(record).circumstances == []


def test_stream_that_differs_without_any_value_differing_is_no_origin() -> None:
    def record(run: Recording, side: str) -> None:
        run.call("skip", outputs={"out": "x"}, rng={"rng.torch": (side, side + "1")})

    found = both(record)

    assert (short(found), found.first) == ([("random_stream", "rng.torch", 0, True)], None)


def test_library_that_draws_a_name_from_the_unseeded_generator_is_no_circumstance() -> None:
    def record(run: Recording, side: str) -> None:
        run.call("connect", rng={"rng.python": (side, side + "1")})
        run.call("jitter", outputs={"out": f"j{side}"}, rng={"rng.numpy": ("s", "t")})

    assert both(record).circumstances == []


def test_draw_that_shows_in_an_output_counts_for_every_generator() -> None:
    def record(run: Recording, side: str) -> None:
        run.call("jitter", outputs={"out": f"j{side}"}, rng={"rng.python": (side, side + "1")})

    assert short(both(record)) == [("random_stream", "rng.python", 0, True)]


def test_draw_somewhere_in_a_whole_training_is_no_circumstance() -> None:
    def record(run: Recording, side: str) -> None:
        rng = {"rng.torch": (f"unseeded {side}", "s")}
        with run.nest("main", outputs={"out": f"loss {side}"}, rng=rng):
            for run.step in range(2):
                run.call("step", outputs={"out": f"w{run.step}{side}"})

    assert both(record).circumstances == []


def test_function_that_draws_and_differs_within_a_step_counts() -> None:
    def record(run: Recording, side: str) -> None:
        rng = {"rng.python": (side, side + "1")}
        with run.nest("augment", outputs={"out": f"x{side}"}, rng=rng):
            run.call("flip", outputs={"out": f"x{side}"})

    assert short(both(record)) == [("random_stream", "rng.python", 0, True)]


def test_stream_that_moves_apart_after_an_operation_differed_comes_later() -> None:
    def record(run: Recording, side: str) -> None:
        run.call("loss", inputs={"arg[0]": "x"}, outputs={"out": f"l{side}"})
        run.step = 3
        run.call("rand", outputs={"out": f"r{side}"}, rng={"rng.torch": (side, side + "1")})

    found = both(record)

    assert short(found) == [("random_stream", "rng.torch", 3, False)]
    assert found.first is not None
    assert found.first[1].baseline is not None
    assert found.first[1].baseline.callee == "loss"


def test_argument_of_the_call_around_everything_does_not_come_before_the_data() -> None:
    def record(run: Recording, side: str) -> None:
        with run.nest("main", values={"value.arg[0]": side}, outputs={"out": f"={side}"}):
            loop(run, ["x0", f"x{side}"])

    found = both(record)

    assert found.first is not None
    assert found.first[1].kind == "unexplained_input"
    assert short(found) == [("data_content", "train.py:2 `loader(...)`", 1, True)]


def test_same_items_in_another_order_are_told_from_other_items() -> None:
    orders = {"a": ["x0", "x1", "x2"], "b": ["x0", "x2", "x1"]}

    found = both(lambda run, side: loop(run, orders[side]))

    (item,) = found.circumstances
    assert short(found) == [("data_order", "train.py:1 `loader(...)`", 1, True)]
    assert item.text == (
        "train.py:1 `loader(...)` yields the same 3 items in another order, first at item 2 "
        "(step 1)"
    )


def test_other_items_are_counted() -> None:
    contents = {"a": ["x0", "x1", "x2"], "b": ["x0", "z1", "x2"]}

    found = both(lambda run, side: loop(run, contents[side]))

    (item,) = found.circumstances
    assert short(found) == [("data_content", "train.py:1 `loader(...)`", 1, True)]
    assert item.text == (
        "1 of 3 items that train.py:1 `loader(...)` yields in the baseline are not among the "
        "candidate's 3, first at item 2 (step 1)"
    )


def batches(samples: Sequence[Sequence[int]]) -> RankTables:
    """Tables of a loop whose items are batches of one-word samples, one region each."""
    run = Recording(regions=1)
    loop(run, ["?"] * len(samples))
    tables = run.tables()
    words = []
    for batch in samples:
        word = 0
        for sample in batch:
            word ^= sample
        words.append(word)
    items = tables.tensors.filter(pl.col("role") == 1)["tick"].to_list()[::2]
    signatures = dict(zip(items, words, strict=True))
    xor = [[signatures[t]] if t in signatures else None for t in tables.tensors["tick"]]
    mix = [[hash(str(samples)) % 2**32] if x else None for x in xor]
    tensors = tables.tensors.with_columns(
        pl.Series("xor_sig", xor, dtype=pl.List(pl.UInt32)),
        pl.Series("mix_sig", mix, dtype=pl.List(pl.UInt32)),
    )
    return RankTables(tables.calls, tensors, tables.values, tables.marks)


def compare_batches(left: Sequence[Sequence[int]], right: Sequence[Sequence[int]]) -> Comparison:
    run = Recording(regions=1)
    loop(run, ["?"] * len(left))
    sites = view(run).sites
    source = {"train.py": b"loader(...)\nmodel(...)\n"}
    sides = [CaptureView(sites, source, {0: batches(samples)}) for samples in (left, right)]
    return compare_captures(sides[0], sides[1], align_by_callee(sides[0], sides[1]), [0])


def test_samples_batched_in_another_order_are_recognised_by_the_xor_of_all_words() -> None:
    found = compare_batches([(1, 2), (4, 8)], [(1, 8), (4, 2)])

    assert short(found) == [("data_order", "train.py:1 `loader(...)`", 0, True)]
    assert "the same data in another order" in found.circumstances[0].text


def test_other_samples_in_batches_are_other_content_with_the_doubt_said() -> None:
    found = compare_batches([(1, 2), (4, 8)], [(1, 8), (4, 16)])

    assert short(found) == [("data_content", "train.py:1 `loader(...)`", 0, True)]
    assert found.circumstances[0].text.endswith(
        "a shuffled part of one data set looks like this too"
    )


def test_loader_that_yields_more_is_said_though_all_common_items_agree() -> None:
    counts = {"a": ["x0", "x1"], "b": ["x0", "x1", "x2"]}

    found = both(lambda run, side: loop(run, counts[side]))

    (item,) = found.circumstances
    assert item.text == (
        "train.py:1 `loader(...)` yields 2 items in the baseline and 3 in the candidate, equal as "
        "far as both go"
    )


def test_capture_that_ends_early_does_not_show_how_many_items_there_are() -> None:
    sides = Recording(), Recording()
    loop(sides[0], ["x0", "x1", "x2"])
    loop(sides[1], ["x0", "x1"], ends=False)

    assert compare(*sides, incomplete={0: "killed"}).circumstances == []


def test_items_that_were_computed_inherit_their_difference() -> None:
    def record(run: Recording, side: str) -> None:
        run.call("split", inputs={"arg[0]": "x"}, outputs={"out[0]": f"h{side}"})
        run.item("heads", f"h{side}")

    assert both(record).circumstances == []


def test_iteration_inside_a_module_is_not_over_data() -> None:
    def record(run: Recording, side: str) -> None:
        with run.nest("model", flags=4, outputs={"out": f"y{side}"}):
            run.item("hidden", f"h{side}")

    assert both(record).circumstances == []


def test_loop_over_layers_is_not_over_data() -> None:
    def record(run: Recording, side: str) -> None:
        run.loops.add("layers")
        run.call("layers", name="__next__", outputs={"out.param.weight": f"w{side}"})

    assert both(record).circumstances == []


def test_ranks_that_differ_alike_are_one_circumstance() -> None:
    def rank(sites: dict[str, int], side: str) -> Recording:
        run = Recording(sites=sites)
        run.call("rand", outputs={"out": f"r{side}"}, rng={"rng.torch": (side, side + "1")})
        return run

    left, right = ([rank({}, side)] * 2 for side in "ab")
    views = view(*left), view(*right)

    found = compare_captures(*views, align_by_callee(*views), [0, 1])

    assert [item.ranks for item in found.circumstances] == [(0, 1)]


def test_data_on_one_rank_are_placed_against_the_first_origin_of_another() -> None:
    def rank(sites: dict[str, int], loss: str, item: str) -> Recording:
        run = Recording(sites=sites, loops={"loader"})
        run.call("loss", outputs={"out": loss})
        run.step = 1
        run.item("loader", item)
        return run

    sites: tuple[dict[str, int], dict[str, int]] = ({}, {})
    left = view(rank(sites[0], "l", "x"), rank(sites[0], "l", "x"))
    right = view(rank(sites[1], "m", "x"), rank(sites[1], "l", "z"))

    found = compare_captures(left, right, align_by_callee(left, right), [0, 1])

    (item,) = found.circumstances
    assert (item.ranks, item.before_first) == ((1,), True)


def test_circumstances_are_frozen_data() -> None:
    def record(run: Recording, side: str) -> None:
        run.item("loader", side)

    assert all(isinstance(item, Circumstance) for item in both(record).circumstances)
