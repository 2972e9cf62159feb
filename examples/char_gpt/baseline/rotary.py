"""Rotary position embedding: each head dimension pair turns with the position."""

import torch
from torch import nn


class Rotary(nn.Module):
    """Rotates queries and keys; dimension ``i`` is paired with ``i + width / 2``."""

    def __init__(self, head_width: int, base: float = 10_000.0) -> None:
        super().__init__()
        exponents = torch.arange(0, head_width, 2).float() / head_width
        self.register_buffer("frequencies", base**-exponents, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rotate ``x`` of shape ``[batch, heads, time, head_width]`` by its time index."""
        positions = torch.arange(x.shape[-2], device=x.device)
        angles = torch.outer(positions.float(), self.frequencies)
        angles = torch.cat((angles, angles), dim=-1)
        return x * angles.cos() + self.rotate_half(x) * angles.sin()

    def rotate_half(self, x: torch.Tensor) -> torch.Tensor:
        """Map each pair ``(a, b)`` to ``(-b, a)``."""
        first, second = x.chunk(2, dim=-1)
        return torch.cat((-second, first), dim=-1)
