"""Rules over several ranks: what a collective inherits, and which rank's origin comes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from opguard.tools.compare.capture import Callsite
from opguard.tools.compare.keys import CallsiteKeys
from opguard.tools.compare.origin import Origin, OriginKind
from opguard.tools.compare.pairing import Pairing
from opguard.tools.compare.records import Call, CallFlag

_COLLECTIVE_NAMESPACES = ("c10d.", "c10d::", "_c10d_functional", "_dtensor.")

_COLLECTIVE_NAMES = frozenset(
    {
        "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce",
        "all_reduce_coalesced", "all_to_all", "all_to_all_single", "batch_isend_irecv",
        "broadcast", "broadcast_object_list", "gather", "gather_object", "irecv", "isend", "recv",
        "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list",
        "send",
    }
)  # fmt: skip
"""Functions of ``torch.distributed`` that move tensors between ranks."""

_DISTRIBUTED_PREFIXES = ("dist.", "torch.distributed.", "distributed.", "c10d.")


@dataclass(frozen=True, slots=True)
class CollectiveKey:
    """The n-th run of a collective's callsite in a step: names the same collective on any rank."""

    callsite: int
    step: int
    occurrence: int


def is_collective(call: Call, site: Callsite | None) -> bool:
    """Whether a call moves tensors between ranks, itself or in what it runs.

    Discovery saw ``c10d`` operators under it (a DDP backward, an FSDP forward), or its callee is
    a function of ``torch.distributed``. ``Tensor.gather`` and the like share a name, so the
    callee's text must say where it comes from, unless the operators do.
    """
    if call.flags & CallFlag.OPERATOR:
        return call.callee.startswith(_COLLECTIVE_NAMESPACES)
    if site is None:
        return False
    if any(operator.startswith(_COLLECTIVE_NAMESPACES) for operator in site.operators):
        return True
    prefix, _, name = site.callee.rpartition(".")
    return name in _COLLECTIVE_NAMES and f"{prefix}.".startswith(_DISTRIBUTED_PREFIXES)


def collectives(
    pairing: Pairing, keys: CallsiteKeys, sites: Mapping[int, Callsite]
) -> Iterator[tuple[CollectiveKey, Call]]:
    """Paired collectives of one rank with their keys, in the baseline's execution order."""
    occurrences: Counter[tuple[int, int]] = Counter()
    for pair in pairing.pairs:
        call = pair.baseline
        if is_collective(call, sites.get(call.site)):
            place = (keys.call_key(call, keys.baseline), call.step)
            yield CollectiveKey(*place, occurrences[place]), call
            occurrences[place] += 1


def inherit_over_ranks(
    origins: Mapping[int, Sequence[Origin]],
    collective_of: Mapping[int, Mapping[int, CollectiveKey]],
    differing_inputs: Mapping[int, frozenset[CollectiveKey]],
) -> tuple[dict[int, list[Origin]], dict[int, list[Origin]]]:
    """Take out origins that a collective only carried over from another rank.

    A collective with equal local inputs and different outputs looks like an origin to its rank;
    it is inherited when the inputs of the same collective differ on another rank.

    Args:
        origins: Per rank, its origins.
        collective_of: Per rank, the collective's key by the baseline call's id.
        differing_inputs: Per rank, the collectives whose local inputs differ.

    Returns:
        Per rank, the origins that remain, and those inherited from another rank.
    """
    remaining: dict[int, list[Origin]] = {}
    inherited: dict[int, list[Origin]] = {}
    for rank, found in origins.items():
        remaining[rank], inherited[rank] = [], []
        for origin in found:
            key = collective_of[rank].get(origin.baseline.id) if origin.baseline else None
            source = None
            if key is not None and origin.kind in (
                OriginKind.OUTPUTS_DIFFER,
                OriginKind.INCOMPATIBLE,
            ):
                source = next(
                    (other for other in sorted(differing_inputs)
                     if key in differing_inputs[other]),
                    None,
                )  # fmt: skip
            if source is None:
                remaining[rank].append(origin)
            else:
                inherited[rank].append(replace(origin, inherited_from=source))
    return remaining, inherited


def first_over_ranks(origins: Mapping[int, Sequence[Origin]]) -> tuple[int, Origin] | None:
    """The rank and origin that come first: the earliest step, then the earliest in its rank.

    Ticks of different ranks are not one clock, but ranks run the same program, so within a step
    they order well enough; equal positions go to the lower rank.
    """
    firsts = [(rank, found[0]) for rank, found in origins.items() if found]
    return min(firsts, key=lambda entry: (entry[1].step, entry[1].position, entry[0]), default=None)
