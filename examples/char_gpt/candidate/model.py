"""A small GPT: pre-norm blocks and an output layer tied to the embedding."""

import torch
from attention import SelfAttention
from config import Config
from torch import nn
from torch.nn import functional


class FeedForward(nn.Module):
    """Two linear layers with a GELU in between."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape in and out."""
        return self.drop(self.contract(functional.gelu(self.expand(x))))


class Block(nn.Module):
    """Attention and feed-forward, each on a normalised input and added to its residual."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(config.width)
        self.attention = SelfAttention(config.width, config.heads, config.context, config.dropout)
        self.norm_feed_forward = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(config.width, config.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape in and out."""
        x = x + self.attention(self.norm_attention(x))
        return x + self.feed_forward(self.norm_feed_forward(x))


class CharGPT(nn.Module):
    """Predicts the next character at every position."""

    def __init__(self, vocabulary: int, config: Config) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, config.width)
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.apply(self.initialise)

    @staticmethod
    def initialise(module: nn.Module) -> None:
        """Normal weights of standard deviation 0.02, zero biases."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits ``[batch, time, vocabulary]`` of the character after each token."""
        x = self.drop(self.embed(tokens))
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.embed.weight)
