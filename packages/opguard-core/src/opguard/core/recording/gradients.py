"""Gradients of recorded outputs, attributed to the forward call that made them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_METADATA = "opguard"


class GradientHooks:
    """One prehook per autograd node that produced a recorded output.

    The hook sees the gradients of the node's outputs before the node runs, changes nothing and
    refers to calls by number only, so that no tensor lives longer than without it.
    """

    def __init__(self, on_gradient: Callable[[int, str, torch.Tensor], None]) -> None:
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
        metadata: dict[Any, Any] = node.metadata
        watched = metadata.get(_METADATA)
        if watched is None:
            watched = metadata[_METADATA] = []
            node.register_prehook(_prehook(watched, self._on_gradient))
        watched.append((output.output_nr, call, "grad." + slot))


def _prehook(
    watched: list[tuple[int, int, str]],
    on_gradient: Callable[[int, str, torch.Tensor], None],
) -> Callable[[tuple[torch.Tensor | None, ...]], None]:
    def prehook(gradients: tuple[torch.Tensor | None, ...]) -> None:
        for number, call, slot in watched:
            if number < len(gradients):
                gradient = gradients[number]
                if gradient is not None:
                    on_gradient(call, slot, gradient)

    return prehook
