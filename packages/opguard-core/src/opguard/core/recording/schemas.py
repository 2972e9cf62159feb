"""What is known about dispatched operators: which arguments they read, and which results count.

Most of it is read from the operator's schema. Tables hold what no schema says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from opguard.core.recording.callees import OVERWRITES_FIRST

FRESH_OPERATORS = frozenset(
    {
        "_empty_affine_quantized",
        "_empty_per_channel_affine_quantized",
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_quantized",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
        "set_",
    }
)
"""Operators whose result has arbitrary bytes. ``set_`` gives a tensor a storage that whoever made
it may not have filled yet, as ``copy.deepcopy`` does."""

_SCRATCH_ARGUMENTS = frozenset({"reserve", "reserveSpace", "workspace"})
_SCRATCH_RESULTS = frozenset({"debug_attn_mask", "reserve", "unused"})

_UNSPECIFIED_RESULTS = {
    "aten::_batch_norm_impl_index": frozenset({3}),
    "aten::_cudnn_rnn": frozenset({3, 4}),
    "aten::_embedding_bag": frozenset({2, 3}),
    "aten::_embedding_bag_forward_only": frozenset({2, 3}),
    "aten::cudnn_batch_norm": frozenset({3}),
    "aten::miopen_rnn": frozenset({3, 4}),
    "aten::mkldnn_rnn_layer": frozenset({3}),
}
"""Results without a meaning of their own, by position: what a kernel keeps for its backward. Parts
of them may never be written, so they differ between equal runs."""

_FILLED_RESULTS = {"fsdp::all_gather_copy_in": frozenset({0})}
"""Results that are filled parts of an argument, although no schema says that it is written."""

_COLLECTIVE_RESULTS = frozenset(
    {"output", "output_lists", "output_tensor", "output_tensors", "outputs"}
)
_RECEIVED = frozenset({"recv_", "recv_any_source_", "broadcast_"})
"""``broadcast_`` reads on one rank only; there the value shows at the call that made it."""

_OVERWRITTEN_LISTS = frozenset({"_foreach_copy_", "_foreach_zero_"})


class OperatorFacts:
    """Facts about one operator.

    Attributes:
        name: With namespace and overload, such as ``aten::add.Tensor``.
        arguments: Names of the arguments in order.
        unread: Arguments that are only written, or scratch memory.
        written: Arguments that the operator writes.
        returns_written: Whether the results are the written arguments themselves.
        fresh: Whether the results have arbitrary bytes.
        filled: Positions of results that the operator fills where the schema names no argument that
            it writes. Any other result in such a schema is new, or memory that it may have filled
            in part.
        ignored: Whether the operator only talks to a profiler.
        views: Whether the results share memory with an argument that is not written.
        pending: Whether results are complete only after a later wait.
        random: Whether the operator may draw random numbers.
        unspecified: Positions of results without a meaning of their own.
    """

    __slots__ = (
        "arguments",
        "filled",
        "fresh",
        "ignored",
        "name",
        "pending",
        "random",
        "returns_written",
        "unread",
        "unspecified",
        "views",
        "written",
    )

    def __init__(self, operator: Any) -> None:
        schema = getattr(operator, "_schema", None)
        self.arguments: tuple[str, ...] = ()
        self.unread: frozenset[str] = frozenset()
        self.written: frozenset[str] = frozenset()
        self.unspecified: frozenset[int] = frozenset()
        self.filled: frozenset[int] = frozenset()
        self.returns_written = self.fresh = self.views = self.pending = self.ignored = False
        self.random = True
        if schema is None:
            # A higher-order operator: it runs a Python function, and takes what that takes.
            self.name = f"higher_order::{operator.name()}"
            return
        self.name = operator.name()
        base = schema.name.partition("::")[2]
        self.ignored = schema.name.startswith("profiler::")
        self.arguments = tuple(argument.name for argument in schema.arguments)
        written = [
            a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write
        ]
        collective = schema.name.startswith("c10d::")
        if collective:
            written += [a for a in schema.arguments if a.name in _COLLECTIVE_RESULTS]
            written += [a for a in schema.arguments if a.name == "tensors" and base != "send"]
        self.written = frozenset(a.name for a in written)
        unread = {a.name for a in written if a.is_out}
        unread |= {name for name in self.arguments if name in _SCRATCH_ARGUMENTS}
        if base in OVERWRITES_FIRST or base in _OVERWRITTEN_LISTS:
            unread.add(self.arguments[0])
        if collective:
            unread |= _COLLECTIVE_RESULTS & self.written
            if base in _RECEIVED:
                unread.add("tensors")
        self.unread = frozenset(unread)
        returns = schema.returns
        self.returns_written = bool(returns) and all(
            r.alias_info is not None and r.alias_info.is_write for r in returns
        )
        self.fresh = base in FRESH_OPERATORS
        self.views = any(r.alias_info is not None and not r.alias_info.is_write for r in returns)
        functional = schema.name.startswith("_c10d_functional::")
        self.pending = collective or (functional and base != "wait_tensor")
        self.random = torch.Tag.nondeterministic_seeded in operator.tags
        named = {i for i, r in enumerate(returns) if r.name in _SCRATCH_RESULTS}
        self.filled = _FILLED_RESULTS.get(schema.name, frozenset())
        self.unspecified = _UNSPECIFIED_RESULTS.get(schema.name, frozenset()) | named

    def slots(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[tuple[str, str, Any]]:
        """``(argument, slot, value)`` of everything that a call was given."""
        for index, value in enumerate(args):
            name = self.arguments[index] if index < len(self.arguments) else ""
            yield name, f"arg[{index}]", value
        for name, value in kwargs.items():
            yield name, f"kwarg.{name}", value


class KnownOperators:
    """Facts of the operators seen so far, by identity."""

    def __init__(self) -> None:
        self._facts: dict[Any, OperatorFacts] = {}

    def facts(self, operator: Any) -> OperatorFacts:
        """What is known about an operator."""
        found = self._facts.get(operator)
        if found is None:
            found = self._facts[operator] = OperatorFacts(operator)
        return found
