from __future__ import annotations

from dataclasses import dataclass

from opguard.tools.compare import Callsite
from opguard.tools.compare.keys import CallsiteKeys, callsite_keys
from opguard.tools.compare.records import Call
from opguard.tools.source.align import align_sources


def sites(*entries: tuple[str, int, str, int, str], file: str = "a.py") -> dict[int, Callsite]:
    """Callsites from (qualname, line, callee, ordinal, kind)."""
    return {
        number: Callsite(
            number,
            file,
            line,
            line,
            4,
            10,
            qualname,
            kind,
            callee,
            f"{callee}()",
            (line, 4),
            ordinal,
        )
        for number, (qualname, line, callee, ordinal, kind) in enumerate(entries)
    }


def keyed(
    baseline: str,
    candidate: str,
    left: dict[int, Callsite],
    right: dict[int, Callsite],
    candidate_file: str = "a.py",
) -> CallsiteKeys:
    alignment = align_sources({"a.py": baseline.encode()}, {candidate_file: candidate.encode()})
    return callsite_keys(left, right, alignment)


def bases(keys: CallsiteKeys) -> list[tuple[str, str]]:
    return [(basis.source.value, basis.reason) for basis in keys.basis.values()]


def test_calls_of_one_statement_are_told_apart_by_ordinal() -> None:
    source = "def f(x):\n    return g(x) + g(x)\n"
    left = sites(("f", 2, "g", 1, "call"), ("f", 2, "g", 2, "call"))

    keys = keyed(source, source, left, left)

    assert keys.baseline == keys.candidate
    assert len(set(keys.baseline.values())) == 2
    assert bases(keys) == [("exact", "same statement, callee and ordinal")] * 2


def test_comments_and_moved_lines_keep_a_pair_exact() -> None:
    keys = keyed(
        "def f(x):\n    return g(x)\n",
        "# comment\n\ndef f(x):\n    return g( x )\n",
        sites(("f", 2, "g", 0, "call")),
        sites(("f", 4, "g", 0, "call")),
    )

    assert keys.baseline[0] == keys.candidate[0]
    assert bases(keys) == [("exact", "same statement, callee and ordinal")]


def test_renamed_local_variable_makes_a_pair_inferred() -> None:
    keys = keyed(
        "def f(x):\n    y = x.sin()\n    return y.view(2)\n",
        "def f(x):\n    h = x.sin()\n    return h.view(2)\n",
        sites(("f", 3, "y.view", 0, "call")),
        sites(("f", 3, "h.view", 0, "call")),
    )

    assert keys.baseline[0] == keys.candidate[0]
    assert bases(keys) == [("inferred", "same expression with other names: y.view against h.view")]


def test_callsites_of_a_changed_statement_correspond_by_callee_in_order() -> None:
    keys = keyed(
        "def f(x):\n    return h(g(x, 1))\n",
        "def f(x):\n    return k(g(x, 2))\n",
        sites(("f", 2, "h", 0, "call"), ("f", 2, "g", 1, "call")),
        sites(("f", 2, "k", 0, "call"), ("f", 2, "g", 1, "call")),
    )

    assert keys.baseline[1] == keys.candidate[1]
    assert keys.baseline[0] != keys.candidate[0]
    assert bases(keys) == [("inferred", "the statement changed; callee g is on both sides")]


def test_a_callsite_without_aligned_statement_is_keyed_by_its_place_in_the_program() -> None:
    left = sites(("f", 2, "g", 0, "call"))

    keys = keyed("", "", left, left)

    assert keys.baseline == keys.candidate


@dataclass(frozen=True)
class _Empty:
    baseline = {}  # noqa: RUF012
    candidate = {}  # noqa: RUF012


def test_a_call_of_an_unknown_callsite_is_keyed_by_its_callee() -> None:
    keys = callsite_keys({}, {}, _Empty())
    call = Call(1, 0, 99, 0, 0, 0, 0, "Adam.step", 1, 2, None)
    other = Call(7, 0, 42, 0, 0, 0, 0, "Adam.step", 1, 2, None)

    assert keys.call_key(call, {}) == keys.call_key(other, {})
