"""Causal self-attention over several heads."""

import math

import torch
from rotary import Rotary
from torch import nn


class SelfAttention(nn.Module):
    """Multi-head attention with rotary positions and dropout on the weights."""

    def __init__(self, width: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.head_width = width // heads
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.merge = nn.Linear(width, width, bias=False)
        self.rotary = Rotary(self.head_width)
        self.drop = nn.Dropout(dropout)
        future = torch.ones(context, context, dtype=torch.bool).triu(1)
        self.register_buffer("future", future, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend over ``x`` of shape ``[batch, time, width]``; same shape out."""
        batch, time, width = x.shape
        shape = (batch, time, self.heads, self.head_width)
        query, key, value = (
            part.view(shape).transpose(1, 2) for part in self.project(x).split(width, dim=-1)
        )
        query, key = self.rotary(query), self.rotary(key)
        scores = query @ key.transpose(-2, -1) / math.sqrt(self.head_width)
        scores = scores.masked_fill(self.future[:time, :time], float("-inf"))
        weights = self.drop(torch.softmax(scores, dim=-1))
        mixed = (weights @ value).transpose(1, 2).reshape(batch, time, width)
        return self.merge(mixed)
