"""The io tensors of a Perfetto trace: every recorded tensor with its relation to the other side."""

from __future__ import annotations

from typing import Final

import polars as pl

from opguard.tools.compare.fingerprints import FingerprintTable
from opguard.tools.compare.records import Role, Side
from opguard.tools.compare.relations import Relation
from opguard.tools.compare.results import Comparison, RankComparison

_ROLE_NAMES: Final = {int(role): role.name.lower() for role in Role}

_PLACE: Final = ("pair", "role", "slot", "occurrence")
"""What makes two records of a pair the same slot; gradients may arrive several times."""


def slot_frame(comparison: Comparison, rank: RankComparison) -> pl.DataFrame:
    """Slots of both sides' slices, in the order recorded.

    The relation of a slot is that of its two values, whether or not it counts as a difference of
    the call. A slot without counterpart is unpaired, or incomplete where the other call was cut.
    """
    sides = {side: _tensors(comparison, rank, side) for side in Side}
    parts = [
        _relate(sides[side], sides[other], side, rank.fingerprints)
        for side, other in (
            (Side.BASELINE, Side.CANDIDATE),
            (Side.CANDIDATE, Side.BASELINE),
        )
    ]
    return pl.concat(parts)


def _tensors(comparison: Comparison, rank: RankComparison, side: Side) -> pl.DataFrame:
    """Tensor records of one side with their identity and the pair they belong to.

    ``pair`` is the baseline call's number for paired calls and null for others.
    """
    table = comparison.capture(side).tables(rank.rank).tensors.sort("tick")
    pairs = pl.DataFrame(
        [
            (
                v.pair.baseline.id if side is Side.BASELINE else v.pair.candidate.id,
                v.pair.baseline.id,
                v.relation is Relation.INCOMPLETE,
            )
            for v in rank.pairs
        ],
        schema={"call": pl.UInt64, "pair": pl.UInt64, "cut": pl.Boolean},
        orient="row",
    )
    identities = pl.Series("identity", rank.fingerprints.intern_tensors(table), dtype=pl.Int64)
    return (
        table.with_columns(identities, pl.int_range(pl.len()).alias("row"))
        .join(pairs, on="call", how="left")
        .with_columns(pl.int_range(pl.len()).over("call", "role", "slot").alias("occurrence"))
        .sort("row")
    )


def _relate(
    own: pl.DataFrame, other: pl.DataFrame, side: Side, fingerprints: FingerprintTable
) -> pl.DataFrame:
    counterpart = other.filter(pl.col("pair").is_not_null()).select(
        *_PLACE, pl.col("identity").alias("other")
    )
    joined = own.join(counterpart, on=_PLACE, how="left").sort("call", "row")
    relations = pl.Series(
        "relation",
        [
            _relation(identity, match, cut, fingerprints)
            for identity, match, cut in joined.select("identity", "other", "cut").iter_rows()
        ],
        dtype=pl.String,
    )
    offset = 0 if side is Side.BASELINE else 1
    return joined.with_columns(relations).select(
        (pl.col("call") * 2 + offset).cast(pl.UInt64).alias("slice"),
        "slot",
        pl.col("role").replace_strict(_ROLE_NAMES, default=None, return_dtype=pl.String),
        "dtype",
        "shape",
        "device",
        "xor_sig",
        "mix_sig",
        pl.coalesce(pl.col("xor_sig").list.len(), pl.col("mix_sig").list.len())
        .fill_null(0)
        .cast(pl.UInt32)
        .alias("regions"),
        "logical_nbytes",
        "relation",
        "note",
    )


def _relation(
    identity: int, other: int | None, cut: bool | None, fingerprints: FingerprintTable
) -> str:
    if other is not None:
        return fingerprints.relation(identity, other).value
    return (Relation.INCOMPLETE if cut else Relation.UNPAIRED).value
