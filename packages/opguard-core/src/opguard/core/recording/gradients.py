"""Gradients of recorded outputs, attributed to the forward call that made them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

OnGradient = Callable[[torch.Tensor, list[tuple[int, str]]], None]
"""Receives a gradient and the ``(call, slot)`` pairs of every recorded output that it belongs to:
nested calls that return one tensor share its gradient, which is read once."""

_METADATA = "opguard"


class GradientHooks:
    """One prehook per autograd node that produced a recorded output.

    The hook sees the gradients of the node's outputs before the node runs, changes nothing and
    refers to calls by number only, so that no tensor lives longer than without it.
    """

    def __init__(self, on_gradient: OnGradient) -> None:
        self._on_gradient = on_gradient

    def watch(self, call: int, slot: str, output: torch.Tensor) -> None:
        """Record the gradient of ``output`` when backward reaches it.

        Args:
            call: The forward call.
            slot: Slot of the output, e.g. ``out[0]``; the gradient's is ``grad.out[0]``.
            output: A tensor outside functorch transforms.
        """
        if not output.requires_grad:
            return
        try:
            node = output.grad_fn
        except RuntimeError:
            # A view whose base was changed in place so that its history is undefined.
            return
        if node is None:
            return
        # torch's stub calls this property a method.
        metadata: Any = node.metadata
        watched = metadata.get(_METADATA)
        if watched is None:
            watched = metadata[_METADATA] = {}
            node.register_prehook(_prehook(watched, self._on_gradient))
        watched.setdefault(output.output_nr, []).append((call, "grad." + slot))


def _prehook(
    watched: dict[int, list[tuple[int, str]]], on_gradient: OnGradient
) -> Callable[[tuple[torch.Tensor | None, ...]], None]:
    def prehook(gradients: tuple[torch.Tensor | None, ...]) -> None:
        for number, places in watched.items():
            gradient = gradients[number] if number < len(gradients) else None
            if gradient is not None:
                on_gradient(gradient, places)

    return prehook
