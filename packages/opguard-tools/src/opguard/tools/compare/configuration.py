"""How the two runs were started and in what surroundings, as requests and receipts state it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from opguard.tools.compare.arguments import (
    differing_options,
    differing_variables,
    launcher,
    program,
)
from opguard.tools.compare.capture import CaptureView
from opguard.tools.compare.circumstances import (
    Circumstance,
    CircumstanceKind,
    contrast,
    merge_ranks,
)

_FACT_KINDS: Final = {
    "OMP_NUM_THREADS": CircumstanceKind.THREADS,
    "MKL_NUM_THREADS": CircumstanceKind.THREADS,
    "torch.num_threads": CircumstanceKind.THREADS,
    "torch.default_dtype": CircumstanceKind.DETERMINISM,
    "torch.float32_matmul_precision": CircumstanceKind.DETERMINISM,
}
"""Kind by name of a receipt's ``environment``; all others are of the environment."""

_RECEIPT_VARIABLES: Final = frozenset({"OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONHASHSEED"})
"""Variables whose value in force is in the receipts, wherever it was set."""


def configuration_circumstances(
    baseline: CaptureView, candidate: CaptureView, ranks: Sequence[int]
) -> list[Circumstance]:
    """Differences of arguments, variables, versions, threads and flags.

    What only one side states (an older receipt, a package that only one side imported) is not
    compared. Hosts, process ids, times and the runs' own folders are no circumstances.

    Args:
        baseline: One side.
        candidate: The other side.
        ranks: Ranks whose receipts are compared.
    """
    found: list[tuple[int, Circumstance]] = []
    stated = [
        (rank, baseline.receipts[rank], candidate.receipts[rank])
        for rank in ranks
        if rank in baseline.receipts and rank in candidate.receipts
    ]
    if baseline.request and candidate.request:
        known = _RECEIPT_VARIABLES if stated else frozenset[str]()
        launched = list(_of_requests(baseline.request, candidate.request, known))
        found += [(rank, item) for rank in ranks for item in launched]
    for rank, left, right in stated:
        found += [(rank, item) for item in _of_receipts(left, right)]
    return merge_ranks(found)


def _of_requests(
    baseline: Mapping[str, Any], candidate: Mapping[str, Any], known: frozenset[str]
) -> Iterator[Circumstance]:
    for subject, read in (("script", program), ("launcher", launcher)):
        left, right = read(baseline), read(candidate)
        if left != right:
            yield contrast(CircumstanceKind.ARGUMENTS, subject, left, right)
    for option, *values in differing_options(baseline, candidate):
        yield contrast(CircumstanceKind.ARGUMENTS, option, *values)
    for variable, *values in differing_variables(baseline, candidate, known):
        yield contrast(CircumstanceKind.ENVIRONMENT, variable, *values)


def _of_receipts(left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[Circumstance]:
    for subject, path, kind in (
        ("world size", ("world_size",), CircumstanceKind.ARGUMENTS),
        ("number of fingerprint regions", ("fingerprint", "regions"), CircumstanceKind.ENVIRONMENT),
        ("OPGUARD_DETERMINISTIC", ("determinism", "requested"), CircumstanceKind.DETERMINISM),
    ):
        x, y = _at(left, path), _at(right, path)
        if x is not None and y is not None and x != y:
            yield contrast(kind, subject, _text(x), _text(y))
    for name, *values in _differing(_at(left, ("versions",)), _at(right, ("versions",))):
        yield contrast(CircumstanceKind.VERSIONS, name, *values)
    yield from _environment(_at(left, ("environment",)), _at(right, ("environment",)))
    settings = ("determinism", "settings")
    for name, *values in _differing(_at(left, settings), _at(right, settings)):
        yield contrast(CircumstanceKind.DETERMINISM, name, *values)


def _environment(left: Any, right: Any) -> Iterator[Circumstance]:
    """Facts of the environment; a variable that only one side has set differs as well."""
    if not (isinstance(left, Mapping) and isinstance(right, Mapping)):
        return
    for name in sorted(_RECEIPT_VARIABLES & (left.keys() ^ right.keys())):
        kind = _FACT_KINDS.get(name, CircumstanceKind.ENVIRONMENT)
        yield contrast(kind, name, left.get(name), right.get(name))
    for name, *values in _differing(left, right):
        yield contrast(_FACT_KINDS.get(name, CircumstanceKind.ENVIRONMENT), name, *values)


def _differing(left: Any, right: Any) -> Iterator[tuple[str, str | None, str | None]]:
    """Entries that both sides state, with another value."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for name in sorted(left.keys() & right.keys()):
            if left[name] != right[name]:
                yield name, _text(left[name]), _text(right[name])


def _at(document: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = document
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
