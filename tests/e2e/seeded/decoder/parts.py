import math

import torch
import torch.nn.functional as F
from torch import nn


class RootNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * scale).to(x.dtype) * self.weight


class Attention(nn.Module):
    def __init__(self, width, heads, shared):
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * shared * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, mask):
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 2, self.shared, self.size).unbind(2)
        times = self.heads // self.shared
        k = k.transpose(1, 2).repeat_interleave(times, dim=1)
        v = v.transpose(1, 2).repeat_interleave(times, dim=1)
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(self.size)
        scores = scores.masked_fill(mask, float("-inf"))
        weights = F.softmax(scores, dim=-1)
        mixed = torch.einsum("bhqk,bhkd->bhqd", weights, v)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.gate, self.down = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))
