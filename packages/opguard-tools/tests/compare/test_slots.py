from __future__ import annotations

from capture_builders import Recording, align_by_callee, view

from opguard.tools.compare import compare_captures
from opguard.tools.compare.slots import PairDifference, match_renamed


def difference(baseline: Recording, candidate: Recording) -> PairDifference:
    left, right = view(baseline), view(candidate)
    found = compare_captures(left, right, align_by_callee(left, right), [0])
    return found.ranks[0].pairs[0].difference


def slots(found: PairDifference) -> tuple[list[str], list[str]]:
    return [d.slot for d in found.inputs], [d.slot for d in found.outputs]


def one_call(inputs: dict[str, str], outputs: dict[str, str]) -> Recording:
    run = Recording()
    run.call("f", inputs=inputs, outputs=outputs)
    return run


def test_positional_and_keyword_argument_match_by_value() -> None:
    found = difference(
        one_call({"arg[0]": "x", "arg[1]": "m"}, {"out": "y"}),
        one_call({"arg[0]": "x", "kwarg.mask": "m"}, {"out": "z"}),
    )

    assert slots(found) == ([], ["out"])


def test_renamed_modules_match_by_value() -> None:
    found = difference(
        one_call({"param.fc.weight": "w"}, {"param.fc.weight": "w2"}),
        one_call({"param.linear.weight": "w"}, {"param.linear.weight": "w2"}),
    )

    assert slots(found) == ([], [])


def test_input_on_one_side_only_counts_when_an_output_differs() -> None:
    found = difference(
        one_call({"arg[0]": "x"}, {"out": "y"}),
        one_call({"arg[0]": "x", "kwarg.mask": "m"}, {"out": "z"}),
    )

    assert slots(found) == (["kwarg.mask"], ["out"])


def test_input_on_one_side_only_does_not_count_when_outputs_agree() -> None:
    found = difference(
        one_call({"arg[0]": "x"}, {"out": "y"}),
        one_call({"arg[0]": "x", "kwarg.mask": "m"}, {"out": "y"}),
    )

    assert slots(found) == ([], [])


def test_state_on_one_side_only_always_counts() -> None:
    found = difference(
        one_call({"param.a": "w"}, {"out": "y"}),
        one_call({"param.a": "w", "param.b": "v"}, {"out": "y"}),
    )

    assert [(d.slot, d.baseline) for d in found.inputs] == [("param.b", None)]


def test_output_on_one_side_only_is_no_difference_unless_it_is_state() -> None:
    assert not difference(one_call({}, {"out": "y"}), one_call({}, {"out": "y", "out[1]": "a"}))
    assert slots(
        difference(one_call({}, {"out": "y"}), one_call({}, {"out": "y", "param.w": "a"}))
    ) == ([], ["param.w"])


def test_equal_values_are_matched_one_to_one() -> None:
    assert match_renamed({"a": 1, "b": 1, "c": 2}, {"d": 1, "e": 3}) == (
        {"b": 1, "c": 2},
        {"e": 3},
    )


def test_inputs_of_a_call_cut_off_on_one_side_are_compared_where_both_have_them() -> None:
    baseline, candidate = Recording(), Recording()
    with baseline.nest("f", inputs={"arg[0]": "x", "param.w": "w"}, outputs={"out": "y"}):
        pass
    with candidate.nest("f", inputs={"arg[0]": "z"}, ends=False):
        pass

    assert slots(difference(baseline, candidate)) == (["arg[0]"], [])
