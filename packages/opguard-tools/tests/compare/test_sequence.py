from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opguard.tools.compare import sequence
from opguard.tools.compare.sequence import align_sequences

keys = st.lists(st.integers(0, 4), max_size=14)


def longest_common_subsequence(left: list[int], right: list[int]) -> int:
    """Length by the textbook table, the oracle of the greedy algorithm."""
    table = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i, x in enumerate(left):
        for j, y in enumerate(right):
            table[i + 1][j + 1] = (
                table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
            )
    return table[-1][-1]


def is_alignment(pairs: list[tuple[int, int]], left: list[int], right: list[int]) -> bool:
    increasing = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(pairs))
    return increasing and all(left[i] == right[j] for i, j in pairs)


@settings(deadline=None, derandomize=True)
@given(keys, keys)
def test_alignment_is_a_longest_common_subsequence(left: list[int], right: list[int]) -> None:
    pairs = align_sequences(left, right)

    assert is_alignment(pairs, left, right)
    assert len(pairs) == longest_common_subsequence(left, right)


@settings(deadline=None, derandomize=True)
@given(keys, keys)
def test_matching_by_occurrence_keeps_order_on_both_sides(
    left: list[int], right: list[int]
) -> None:
    assert is_alignment(sequence._match_occurrences(left, right), left, right)


def test_call_missing_once_per_step_does_not_shift_what_follows() -> None:
    step = list(range(20))
    shorter = step[:7] + step[8:]

    pairs = align_sequences(step * 50, shorter * 50)

    assert len(pairs) == 19 * 50
    assert all((step * 50)[i] == (shorter * 50)[j] for i, j in pairs)


def test_extra_iteration_leaves_all_other_elements_aligned() -> None:
    assert align_sequences([1, 2, 1, 2, 1, 2], [1, 2, 1, 2]) == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_beyond_the_bound_occurrences_are_matched_instead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequence, "MAX_DIFFERENCES", 2)

    assert align_sequences([9, 1, 2, 3, 4, 8], [7, 1, 5, 3, 6, 4]) == [(1, 1), (3, 3), (4, 5)]


def test_sequences_with_little_in_common_are_aligned_in_bounded_time() -> None:
    source = random.Random(0)
    left = [source.randrange(500) for _ in range(40_000)]
    right = [source.randrange(500) for _ in range(40_000)]

    assert is_alignment(align_sequences(left, right), left, right)
