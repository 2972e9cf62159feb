"""Alignment of two sequences of statements.

Statements that occur once on each side anchor the alignment, and only what lies between two
anchors is compared further. So a repeated ``x = x + y`` or ``return out`` is not taken for
another one far away, which a plain longest common subsequence would do.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence

_EXACT_CELLS = 40_000
"""Largest table of the exact algorithm (200 x 200 statements, about 10 ms)."""


def align(baseline: Sequence[Hashable], candidate: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Index pairs of corresponding elements, increasing on both sides."""
    pairs: list[tuple[int, int]] = []
    _align(baseline, candidate, 0, len(baseline), 0, len(candidate), pairs)
    return pairs


def _align(
    left: Sequence[Hashable],
    right: Sequence[Hashable],
    i: int,
    i_end: int,
    j: int,
    j_end: int,
    pairs: list[tuple[int, int]],
) -> None:
    """Align ``left[i:i_end]`` with ``right[j:j_end]``."""
    while i < i_end and j < j_end and left[i] == right[j]:
        pairs.append((i, j))
        i, j = i + 1, j + 1
    suffix = 0
    while i < i_end and j < j_end and left[i_end - 1] == right[j_end - 1]:
        i_end, j_end, suffix = i_end - 1, j_end - 1, suffix + 1
    anchors = _anchors(left[i:i_end], right[j:j_end])
    if anchors:
        first_i, first_j = i, j
        for a, b in anchors:
            _align(left, right, first_i, i + a, first_j, j + b, pairs)
            pairs.append((i + a, j + b))
            first_i, first_j = i + a + 1, j + b + 1
        _align(left, right, first_i, i_end, first_j, j_end, pairs)
    elif i < i_end and j < j_end:
        pairs += [(i + a, j + b) for a, b in _common(left[i:i_end], right[j:j_end])]
    pairs += [(i_end + k, j_end + k) for k in range(suffix)]


def _anchors(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Elements that occur once on each side, reduced to the longest run in the same order."""
    left_counts, right_counts = Counter(left), Counter(right)
    place = {key: j for j, key in enumerate(right) if right_counts[key] == 1}
    unique = [
        (i, place[key]) for i, key in enumerate(left) if left_counts[key] == 1 and key in place
    ]
    tails: list[int] = []
    tail_pairs: list[int] = []
    previous: list[int] = []
    for number, (_, j) in enumerate(unique):
        length = bisect_left(tails, j)
        previous.append(tail_pairs[length - 1] if length else -1)
        tails[length : length + 1] = [j]
        tail_pairs[length : length + 1] = [number]
    chain: list[tuple[int, int]] = []
    number = tail_pairs[-1] if tail_pairs else -1
    while number >= 0:
        chain.append(unique[number])
        number = previous[number]
    chain.reverse()
    return chain


def _common(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Longest common subsequence of what has no anchors; an approximation when it is long."""
    rows, columns = len(left), len(right)
    if rows * columns > _EXACT_CELLS:
        matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
        return [
            (block.a + k, block.b + k)
            for block in matcher.get_matching_blocks()
            for k in range(block.size)
        ]
    length = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            if left[i] == right[j]:
                length[i][j] = length[i + 1][j + 1] + 1
            else:
                length[i][j] = max(length[i + 1][j], length[i][j + 1])
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < rows and j < columns:
        if left[i] == right[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif length[i + 1][j] >= length[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs
