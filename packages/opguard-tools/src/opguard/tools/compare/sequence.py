"""Alignment of two sequences of integers: which elements correspond, in order.

Both sides of a training run mostly the same calls, so almost everything lies in a common prefix
and suffix. What is left is aligned with Myers' greedy algorithm, which finds a longest common
subsequence in time proportional to (length + differences²); beyond a bounded number of
differences occurrences are matched by rank instead, so that time stays close to linear whatever
the input.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

MAX_DIFFERENCES = 1_500
"""Elements without counterpart up to which the exact algorithm runs.

Its trace holds about MAX_DIFFERENCES² small integers: 2.3 million, some 20 MB and a second.
"""


def align_sequences(baseline: Sequence[int], candidate: Sequence[int]) -> list[tuple[int, int]]:
    """Index pairs of corresponding elements, strictly increasing on both sides.

    Args:
        baseline: Keys of the baseline's calls in execution order.
        candidate: Keys of the candidate's calls in execution order.

    Returns:
        ``(i, j)`` with ``baseline[i] == candidate[j]``.
    """
    prefix = _common_prefix(baseline, candidate)
    suffix = _common_suffix(baseline, candidate, prefix)
    pairs = [(i, i) for i in range(prefix)]
    rows, columns = len(baseline) - suffix, len(candidate) - suffix
    if prefix < rows and prefix < columns:
        left, right = baseline[prefix:rows], candidate[prefix:columns]
        middle = _myers(left, right, MAX_DIFFERENCES)
        if middle is None:
            middle = _match_occurrences(left, right)
        pairs += [(prefix + i, prefix + j) for i, j in middle]
    pairs += [(rows + k, columns + k) for k in range(suffix)]
    return pairs


def align_between(
    pairs: Sequence[tuple[int, int]], baseline: Sequence[int], candidate: Sequence[int]
) -> list[tuple[int, int]]:
    """Add to an alignment what other keys pair between its pairs.

    Args:
        pairs: Index pairs, strictly increasing on both sides; all of them are kept.
        baseline: Other keys of the baseline's calls.
        candidate: Other keys of the candidate's calls.
    """
    found: list[tuple[int, int]] = []
    i = j = 0
    for next_i, next_j in [*pairs, (len(baseline), len(candidate))]:
        if i < next_i and j < next_j:
            inner = align_sequences(baseline[i:next_i], candidate[j:next_j])
            found += [(i + x, j + y) for x, y in inner]
        if next_i < len(baseline):
            found.append((next_i, next_j))
        i, j = next_i + 1, next_j + 1
    return found


def _common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    limit = min(len(left), len(right))
    return next((i for i in range(limit) if left[i] != right[i]), limit)


def _common_suffix(left: Sequence[int], right: Sequence[int], prefix: int) -> int:
    limit = min(len(left), len(right)) - prefix
    return next((i for i in range(limit) if left[-1 - i] != right[-1 - i]), limit)


def _myers(
    left: Sequence[int], right: Sequence[int], max_differences: int
) -> list[tuple[int, int]] | None:
    """Longest common subsequence, or None when more than ``max_differences`` are left over.

    ``furthest[k]`` is the furthest index into ``left`` reached on diagonal ``k`` (index in left
    minus index in right).

    Source: E. W. Myers, "An O(ND) Difference Algorithm and Its Variations", 1986.
    """
    rows, columns = len(left), len(right)
    if abs(rows - columns) > max_differences:
        return None
    furthest: dict[int, int] = {1: 0}
    trace: list[dict[int, int]] = []
    for differences in range(min(rows + columns, max_differences) + 1):
        reached: dict[int, int] = {}
        for k in range(-differences, differences + 1, 2):
            if k == -differences or (
                k != differences and furthest.get(k - 1, -1) < furthest.get(k + 1, -1)
            ):
                x = furthest.get(k + 1, -1)
            else:
                x = furthest.get(k - 1, -1) + 1
            y = x - k
            if x < 0 or y < 0 or x > rows or y > columns:
                continue
            while x < rows and y < columns and left[x] == right[y]:
                x, y = x + 1, y + 1
            reached[k] = x
            if x >= rows and y >= columns:
                trace.append(furthest)
                return _backtrack(trace, rows, columns)
        trace.append(furthest)
        furthest = reached
    return None


def _backtrack(trace: list[dict[int, int]], rows: int, columns: int) -> list[tuple[int, int]]:
    """Walk the trace of ``_myers`` back from the end and collect the diagonal moves."""
    pairs: list[tuple[int, int]] = []
    x, y = rows, columns
    for differences in range(len(trace) - 1, -1, -1):
        furthest = trace[differences]
        k = x - y
        if k == -differences or (
            k != differences and furthest.get(k - 1, -1) < furthest.get(k + 1, -1)
        ):
            previous = k + 1
        else:
            previous = k - 1
        start_x = furthest.get(previous, 0) if differences else 0
        start_y = start_x - previous if differences else 0
        while x > start_x and y > start_y:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = start_x, start_y
    pairs.reverse()
    return pairs


def _match_occurrences(left: Sequence[int], right: Sequence[int]) -> list[tuple[int, int]]:
    """Match the n-th occurrence of each key on both sides, keeping the longest ordered chain.

    The bounded fallback for sequences that have little in common: O(n log n).
    """
    seen: dict[int, int] = {}
    places: dict[tuple[int, int], int] = {}
    for j, key in enumerate(right):
        occurrence = seen[key] = seen.get(key, -1) + 1
        places[key, occurrence] = j
    seen.clear()
    candidates: list[tuple[int, int]] = []
    for i, key in enumerate(left):
        occurrence = seen[key] = seen.get(key, -1) + 1
        place = places.get((key, occurrence))
        if place is not None:
            candidates.append((i, place))
    return _longest_increasing(candidates)


def _longest_increasing(candidates: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Longest subsequence of pairs (already ordered by first) that increases in the second."""
    tails: list[int] = []
    tail_index: list[int] = []
    before: list[int] = []
    for index, (_, j) in enumerate(candidates):
        length = bisect_left(tails, j)
        before.append(tail_index[length - 1] if length else -1)
        if length == len(tails):
            tails.append(j)
            tail_index.append(index)
        else:
            tails[length], tail_index[length] = j, index
    chain: list[tuple[int, int]] = []
    index = tail_index[-1] if tail_index else -1
    while index >= 0:
        chain.append(candidates[index])
        index = before[index]
    chain.reverse()
    return chain
