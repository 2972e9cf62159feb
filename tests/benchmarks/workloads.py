"""Three trainings that benchmarks trace: a transformer, one that is all overhead, one all products.

This file imports nothing but torch and names no tool: copied into a folder it is the source of a
workload, and the statements that a tracer instruments are those of the models and of ``step``.
Every builder seeds torch's generator, so that two builds train alike bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

Step = Callable[[], torch.Tensor]

VOCABULARY = 1024
WIDTH = 256
HEADS = 4
CONTEXT = 128
LAYERS = 4
BATCH = 8

NARROW = 32
NARROW_LAYERS = 10
NARROW_BATCH = 16

SQUARE = 1024
SQUARE_LAYERS = 4


class CausalAttention(nn.Module):
    """Multi-head self-attention in which a position sees itself and those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.project_in = nn.Linear(WIDTH, 3 * WIDTH)
        self.project_out = nn.Linear(WIDTH, WIDTH)

    def split_heads(self, features: torch.Tensor) -> torch.Tensor:
        """``[batch, time, width]`` to ``[batch, heads, time, width / heads]``."""
        batch, time, width = features.shape
        return features.view(batch, time, HEADS, width // HEADS).transpose(1, 2)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Attend; shape ``[batch, time, width]`` in and out."""
        query, key, value = self.project_in(features).chunk(3, dim=-1)
        mixed = functional.scaled_dot_product_attention(
            self.split_heads(query), self.split_heads(key), self.split_heads(value), is_causal=True
        )
        joined = mixed.transpose(1, 2).reshape(features.shape)
        return self.project_out(joined)


class Layer(nn.Module):
    """Attention and a feed-forward part, each normalised before and added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.attention = CausalAttention()
        self.forward_norm = nn.LayerNorm(WIDTH)
        self.widen = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """One layer; shape ``[batch, time, width]`` in and out."""
        features = features + self.attention(self.attention_norm(features))
        hidden = functional.gelu(self.widen(self.forward_norm(features)))
        return features + self.narrow(hidden)


class Transformer(nn.Module):
    """A decoder-only language model with learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.unembed = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross entropy of the targets; both arguments are ``int64[batch, time]``."""
        places = torch.arange(tokens.shape[1])
        features = self.tokens(tokens) + self.positions(places)
        for layer in self.layers:
            features = layer(features)
        logits = self.unembed(self.norm(features))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Narrow(nn.Module):
    """Many operations on tensors so small that calling them is all that takes time."""

    def __init__(self) -> None:
        super().__init__()
        weights = (torch.randn(NARROW, NARROW) * 0.1 for _ in range(NARROW_LAYERS))
        self.weights = nn.ParameterList(nn.Parameter(weight) for weight in weights)
        biases = (torch.zeros(NARROW) for _ in range(NARROW_LAYERS))
        self.biases = nn.ParameterList(nn.Parameter(bias) for bias in biases)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Mean square of the last layer's output."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            hidden = functional.linear(features, weight, bias)
            hidden = torch.relu(hidden)
            hidden = torch.mul(hidden, 0.5)
            features = torch.add(features, hidden)
        return torch.mean(torch.square(features))


class Products(nn.Module):
    """A few large matrix products."""

    def __init__(self) -> None:
        super().__init__()
        weights = (torch.randn(SQUARE, SQUARE) / SQUARE**0.5 for _ in range(SQUARE_LAYERS))
        self.weights = nn.ParameterList(nn.Parameter(weight) for weight in weights)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Mean of the last product."""
        for weight in self.weights:
            features = torch.relu(torch.matmul(features, weight))
        return torch.mean(features)


def training_step(model: nn.Module, optimizer: torch.optim.Optimizer, *batch: torch.Tensor) -> Step:
    """A step of a model that gives its loss, always on the same batch."""

    def step() -> torch.Tensor:
        loss = model(*batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def transformer_step(seed: int = 0) -> Step:
    """Workload A: one AdamW step of the transformer on a fixed batch, tensor by tensor."""
    torch.manual_seed(seed)
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=False, fused=False)
    tokens = torch.randint(0, VOCABULARY, (BATCH, CONTEXT))
    targets = torch.randint(0, VOCABULARY, (BATCH, CONTEXT))
    return training_step(model, optimizer, tokens, targets)


def narrow_step(seed: int = 0) -> Step:
    """Workload B: one SGD step of about a millisecond that is bound by overhead."""
    torch.manual_seed(seed)
    model = Narrow()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    return training_step(model, optimizer, torch.randn(NARROW_BATCH, NARROW))


def products_step(seed: int = 0) -> Step:
    """Workload C: one SGD step that is bound by matrix products."""
    torch.manual_seed(seed)
    model = Products()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    return training_step(model, optimizer, torch.randn(SQUARE, SQUARE))


WORKLOADS: dict[str, Callable[[], Step]] = {
    "A": transformer_step,
    "B": narrow_step,
    "C": products_step,
}
