"""Identity of recorded values, and how two of them relate.

A recorded tensor is identified by dtype, shape and both region signatures; the comparison only ever
asks whether two identities are the same, so every distinct identity is interned once as a small
integer and a million tensor records are compared as integers. Details (regions, byte ranges) are
looked up again for the few slots that end up in a report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from opguard.tools.compare.relations import Relation

VALUE_KIND = "value"
"""``kind`` of a non-tensor value; its text is in ``note``."""

_ROWS_PER_SLICE = 131_072
"""Rows keyed at a time: bounds the temporary key strings to a few tens of MB."""


_VALUE_LAYOUT = 0
"""Layout number of non-tensor values; tensor layouts count from 1."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What was recorded of one value.

    Attributes:
        dtype: Tensor dtype, or empty for a non-tensor value.
        shape: Sizes, one per dimension.
        kind: ``strided``, ``sparse_coo``, ``fake``, ``meta``, … or ``value``.
        logical_nbytes: Bytes in logical order (``numel * itemsize``).
        xor_sig: One u32 per region of ``flat-u32-le-v1``, or None when no value was read.
        mix_sig: One u32 per region of ``flat-u32-mix-v1``, or None.
        note: Why there is no signature; for ``kind == "value"`` the value's text.

    Source: fingerprint spec F7, F12, F13.
    """

    dtype: str = ""
    shape: tuple[int, ...] = ()
    kind: str = "strided"
    logical_nbytes: int = 0
    xor_sig: tuple[int, ...] | None = None
    mix_sig: tuple[int, ...] | None = None
    note: str | None = None

    @property
    def signed(self) -> bool:
        """Whether bytes were read, so that equality says something about values."""
        return self.xor_sig is not None or self.mix_sig is not None

    @property
    def is_value(self) -> bool:
        """Whether this is a non-tensor value, compared by its text."""
        return self.kind == VALUE_KIND

    @property
    def regions(self) -> int:
        """Number of regions of the signatures, 0 without signature."""
        return len(self.xor_sig or self.mix_sig or ())

    def describe(self) -> str:
        """One short text for people: the value's text, or dtype and shape (and the note)."""
        if self.is_value:
            return self.note or ""
        text = f"{self.dtype.removeprefix('torch.')}[{', '.join(map(str, self.shape))}]"
        return text if self.signed or not self.note else f"{text} ({self.note})"


def value(text: str) -> Fingerprint:
    """Fingerprint of a non-tensor value, identified by its text."""
    return Fingerprint(kind=VALUE_KIND, note=text)


@dataclass(frozen=True, slots=True)
class FingerprintRelation:
    """How two recorded values of one slot relate.

    Attributes:
        relation: equal, different or incompatible.
        reason: Why, in a few words; for ``equal`` without signatures, that only metadata agree.
        regions_differing: Indexes of regions whose signature differs under either scheme.
        schemes_differing: ``xor_sig`` and/or ``mix_sig``.
    """

    relation: Relation
    reason: str
    regions_differing: tuple[int, ...] = ()
    schemes_differing: tuple[str, ...] = ()


def relate(baseline: Fingerprint, candidate: Fingerprint) -> FingerprintRelation:
    """Relate two recorded values of the same slot.

    Signatures are set side by side only when regions and logical size agree; values that were
    not read are never called equal in value, only in metadata.

    Source: fingerprint spec F11, F12, F13.
    """
    if baseline.is_value or candidate.is_value:
        if baseline == candidate:
            return FingerprintRelation(Relation.EQUAL, "same value")
        return FingerprintRelation(
            Relation.DIFFERENT, f"{baseline.describe()} against {candidate.describe()}"
        )
    if baseline.dtype != candidate.dtype or baseline.shape != candidate.shape:
        return FingerprintRelation(
            Relation.INCOMPATIBLE,
            f"dtype or shape differ: {baseline.describe()} against {candidate.describe()}",
        )
    if not (baseline.signed and candidate.signed):
        return _relate_unsigned(baseline, candidate)
    if baseline.regions != candidate.regions or baseline.logical_nbytes != candidate.logical_nbytes:
        return FingerprintRelation(
            Relation.INCOMPATIBLE,
            f"fingerprint layouts differ: {baseline.regions} regions of "
            f"{baseline.logical_nbytes} bytes against {candidate.regions} regions of "
            f"{candidate.logical_nbytes} bytes",
        )
    return _relate_signatures(baseline, candidate)


def _relate_unsigned(baseline: Fingerprint, candidate: Fingerprint) -> FingerprintRelation:
    if baseline.signed != candidate.signed:
        unread = (candidate if baseline.signed else baseline).note or "no signature"
        return FingerprintRelation(
            Relation.INCOMPATIBLE, f"bytes were read on one side only ({unread})"
        )
    if (baseline.kind, baseline.note) == (candidate.kind, candidate.note):
        return FingerprintRelation(
            Relation.EQUAL, f"metadata only, values were not read: {baseline.note or baseline.kind}"
        )
    return FingerprintRelation(
        Relation.INCOMPATIBLE,
        f"values were not read: {baseline.note or baseline.kind} against "
        f"{candidate.note or candidate.kind}",
    )


def _relate_signatures(baseline: Fingerprint, candidate: Fingerprint) -> FingerprintRelation:
    differing: set[int] = set()
    schemes: list[str] = []
    for scheme, left, right in (
        ("xor_sig", baseline.xor_sig, candidate.xor_sig),
        ("mix_sig", baseline.mix_sig, candidate.mix_sig),
    ):
        if left is None or right is None:
            continue
        regions = {i for i, (x, y) in enumerate(zip(left, right, strict=True)) if x != y}
        if regions:
            differing |= regions
            schemes.append(scheme)
    if not schemes:
        return FingerprintRelation(Relation.EQUAL, "same bytes as far as both signatures see")
    return FingerprintRelation(
        Relation.DIFFERENT,
        f"{' and '.join(schemes)} differ in {len(differing)} of {baseline.regions} regions",
        tuple(sorted(differing)),
        tuple(schemes),
    )


class FingerprintTable:
    """Interns fingerprints of both sides of one rank as integers: equal ids, equal identity."""

    def __init__(self) -> None:
        """Create an empty table."""
        self._ids: dict[str, int] = {}
        self._rows: list[Fingerprint | tuple[pl.DataFrame, int]] = []
        self._signed: list[bool] = []
        self._layouts: list[int] = []
        self._layout_ids: dict[str, int] = {}

    def __getitem__(self, identity: int) -> Fingerprint:
        """Return the fingerprint behind an interned id."""
        row = self._rows[identity]
        if isinstance(row, tuple):
            row = self._rows[identity] = _from_row(row[0].row(row[1], named=True))
        return row

    def is_signed(self, identity: int) -> bool:
        """Whether the id stands for a tensor whose bytes were read."""
        return self._signed[identity]

    def is_tensor(self, identity: int) -> bool:
        """Whether the id stands for a tensor (not a value recorded by its text)."""
        return self._layouts[identity] != _VALUE_LAYOUT

    def same_layout(self, left: int, right: int) -> bool:
        """Whether dtype, shape and what was read (size and regions, or why not) agree."""
        return self._layouts[left] == self._layouts[right]

    def relation(self, left: int, right: int) -> Relation:
        """Relation of two ids, without looking at the details that ``relate`` explains."""
        if left == right:
            return Relation.EQUAL
        if not (self.is_tensor(left) and self.is_tensor(right)) or self.same_layout(left, right):
            return Relation.DIFFERENT
        return Relation.INCOMPATIBLE

    def intern_value(self, text: str) -> int:
        """Id of a non-tensor value."""
        key = "v|" + text
        identity = self._ids.get(key)
        if identity is None:
            identity = self._add(key, value(text), _VALUE_LAYOUT, signed=False)
        return identity

    def intern_tensors(self, tensors: pl.DataFrame) -> list[int]:
        """Ids of all rows of a ``tensors`` table, in row order."""
        out: list[int] = []
        for begin in range(0, tensors.height, _ROWS_PER_SLICE):
            part = tensors.slice(begin, _ROWS_PER_SLICE)
            for row, (layout, key, signed) in enumerate(_identity_keys(part)):
                identity = self._ids.get(key)
                if identity is None:
                    number = self._layout_ids.setdefault(layout, len(self._layout_ids) + 1)
                    identity = self._add(key, (part, row), number, signed=signed)
                out.append(identity)
        return out

    def _add(
        self, key: str, row: Fingerprint | tuple[pl.DataFrame, int], layout: int, *, signed: bool
    ) -> int:
        identity = self._ids[key] = len(self._rows)
        self._rows.append(row)
        self._signed.append(signed)
        self._layouts.append(layout)
        return identity


def _identity_keys(tensors: pl.DataFrame) -> Iterator[tuple[str, str, bool]]:
    """Layout text, identity text and "was read" of each row.

    The identity is (dtype, shape, signatures), or (dtype, shape, kind, note) without signatures.
    Equal layouts of rows that were read mean that their signatures may be set side by side.
    """
    signed = pl.col("xor_sig").is_not_null() | pl.col("mix_sig").is_not_null()
    unread = pl.concat_str(
        pl.lit("unread|"), pl.col("kind"), pl.lit("|"), pl.col("note").fill_null(""),
    )  # fmt: skip
    regions = pl.coalesce(pl.col("xor_sig").list.len(), pl.col("mix_sig").list.len())
    read = pl.concat_str(
        pl.lit("read|"), pl.col("logical_nbytes").cast(pl.String), pl.lit("|"),
        regions.cast(pl.String),
    )  # fmt: skip
    keys = tensors.select(
        signed.alias("signed"),
        pl.concat_str(
            pl.col("dtype"), pl.lit("|"), _joined("shape"), pl.lit("|"),
            pl.when(signed).then(read).otherwise(unread),
        ).alias("layout"),
    ).with_columns(tensors["xor_sig"], tensors["mix_sig"])  # fmt: skip
    keys = keys.with_columns(
        pl.concat_str(
            pl.lit("t|"), pl.col("layout"), pl.lit("#"), _joined("xor_sig"), pl.lit("#"),
            _joined("mix_sig"),
        ).alias("key")
    )  # fmt: skip
    return zip(
        keys["layout"].to_list(), keys["key"].to_list(), keys["signed"].to_list(), strict=True
    )


def _joined(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.List(pl.String)).list.join(",").fill_null("-")


def _from_row(row: dict[str, Any]) -> Fingerprint:
    return Fingerprint(
        dtype=str(row["dtype"]),
        shape=tuple(row["shape"]),
        kind=str(row["kind"]),
        logical_nbytes=int(row["logical_nbytes"]),
        xor_sig=_signature(row["xor_sig"]),
        mix_sig=_signature(row["mix_sig"]),
        note=row["note"],
    )


def _signature(words: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if words is None else tuple(words)
