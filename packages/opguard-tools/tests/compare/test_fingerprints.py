from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from capture_builders import tensor

from opguard.tools.compare.capture import LAYOUTS_SCHEMA, TENSORS_SCHEMA
from opguard.tools.compare.fingerprints import (
    Fingerprint,
    FingerprintRelation,
    FingerprintTable,
    relate,
    value,
)
from opguard.tools.compare.relations import Relation

READ = Fingerprint("float32", (4,), "strided", 16, (1, 2, 3, 4), (5, 6, 7, 8))
UNREAD = Fingerprint("float32", (4,), "fake", 16, note="fake tensor")


def frame(*texts: str) -> pl.DataFrame:
    rows = [{"call": 1, "tick": 1, "role": 0, "slot": "out"} | tensor(text) for text in texts]
    return pl.DataFrame(rows, schema=TENSORS_SCHEMA | LAYOUTS_SCHEMA)


@pytest.mark.requirement("F11", "F13")
def test_differing_regions_and_schemes_are_named() -> None:
    other = replace(READ, xor_sig=(1, 9, 3, 4), mix_sig=(5, 6, 7, 9))

    assert relate(READ, other) == FingerprintRelation(
        Relation.DIFFERENT,
        "xor_sig and mix_sig differ in 2 of 4 regions",
        (1, 3),
        ("xor_sig", "mix_sig"),
    )


@pytest.mark.requirement("F13")
def test_a_difference_that_only_the_second_scheme_sees_is_a_difference() -> None:
    other = replace(READ, mix_sig=(5, 6, 0, 8))

    assert relate(READ, other) == FingerprintRelation(
        Relation.DIFFERENT, "mix_sig differ in 1 of 4 regions", (2,), ("mix_sig",)
    )


@pytest.mark.requirement("F11")
@pytest.mark.parametrize(
    "other",
    [
        replace(READ, dtype="int32"),
        replace(READ, shape=(2, 2)),
        replace(READ, logical_nbytes=8),
        replace(READ, xor_sig=(1, 2), mix_sig=(5, 6)),
        UNREAD,
    ],
    ids=["dtype", "shape", "logical size", "regions", "not read"],
)
def test_fingerprints_that_cannot_be_set_side_by_side_are_incompatible(other: Fingerprint) -> None:
    assert relate(READ, other).relation is Relation.INCOMPATIBLE
    assert relate(other, READ).relation is Relation.INCOMPATIBLE


@pytest.mark.requirement("F12")
def test_values_not_read_are_equal_in_metadata_only() -> None:
    assert relate(UNREAD, UNREAD) == FingerprintRelation(
        Relation.EQUAL, "metadata only, values were not read: fake tensor"
    )
    assert relate(UNREAD, replace(UNREAD, note="pending")).relation is Relation.INCOMPATIBLE


def test_non_tensor_values_are_compared_by_text() -> None:
    assert relate(value("0.1"), value("0.1")).relation is Relation.EQUAL
    assert relate(value("0.1"), value("0.2")) == FingerprintRelation(
        Relation.DIFFERENT, "0.1 against 0.2"
    )
    assert relate(value("None"), READ).relation is Relation.DIFFERENT


def test_equal_identity_gets_the_same_number_from_both_sides() -> None:
    table = FingerprintTable()

    first = table.intern_tensors(frame("x", "y", "x", "x:int32", "?pending", "?fake"))
    second = table.intern_tensors(frame("?fake", "x"))

    assert first[0] == first[2]
    assert len(set(first)) == 5
    assert second == [first[5], first[0]]


def test_interned_relation_agrees_with_the_detailed_one() -> None:
    table = FingerprintTable()
    texts = ("x", "y", "x:int32", "x::2x8", "?pending", "?fake")
    ids = [*table.intern_tensors(frame(*texts)), table.intern_value("a"), table.intern_value("b")]

    for left in ids:
        for right in ids:
            assert table.relation(left, right) is relate(table[left], table[right]).relation


def test_details_are_read_back_from_the_number() -> None:
    table = FingerprintTable()
    (identity,) = table.intern_tensors(frame("x:bfloat16:2x3"))
    words = tensor("x:bfloat16:2x3")

    assert table[identity] == Fingerprint(
        "bfloat16",
        (2, 3),
        "strided",
        24,
        tuple(words["xor_sig"]),  # type: ignore[arg-type]
        tuple(words["mix_sig"]),  # type: ignore[arg-type]
    )


def test_device_and_strides_are_not_part_of_the_identity() -> None:
    table = FingerprintTable()
    plain = frame("x")
    moved = plain.with_columns(
        pl.lit("cuda:0").alias("device"), pl.lit([1, 4], dtype=pl.List(pl.Int64)).alias("strides")
    )

    assert table.intern_tensors(plain) == table.intern_tensors(moved)
