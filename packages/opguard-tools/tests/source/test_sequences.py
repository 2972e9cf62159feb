"""Tests of sequence alignment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opguard.tools.source.sequences import align

KEYS = st.lists(st.integers(0, 6), max_size=30)


@given(KEYS, KEYS)
def test_pairs_are_equal_and_in_order(left: list[int], right: list[int]) -> None:
    pairs = align(left, right)
    assert all(left[i] == right[j] for i, j in pairs)
    assert pairs == sorted(set(pairs))
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)


@given(KEYS)
def test_equal_sequences_are_aligned_one_to_one(keys: list[int]) -> None:
    assert align(keys, keys) == [(i, i) for i in range(len(keys))]


@given(KEYS, st.integers(0, 30))
def test_inserted_element_leaves_the_others_aligned(keys: list[int], place: int) -> None:
    longer = [*keys[:place], 99, *keys[place:]]
    assert len(align(keys, longer)) == len(keys)


def test_unique_elements_anchor_the_others() -> None:
    assert align("xaxbx", "bx") == [(3, 0), (4, 1)]


def test_longest_common_subsequence_between_anchors() -> None:
    assert align("abab", "bbaa") in ([(1, 0), (3, 1)], [(0, 2), (2, 3)], [(1, 0), (2, 2)])


def test_elements_that_only_changed_places_keep_the_longer_run() -> None:
    assert align("abcdx", "xabcd") == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_very_long_sequences_without_anchors_are_aligned_approximately() -> None:
    left, right = [0, 1] * 200, [1, 2] * 200
    assert len(align(left, right)) == 200
