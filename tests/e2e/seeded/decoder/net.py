import torch
from parts import Attention, Gated, RootNorm
from torch import nn
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    def __init__(self, width, heads, shared):
        super().__init__()
        self.norms = nn.ModuleList([RootNorm(width), RootNorm(width)])
        self.attention = Attention(width, heads, shared)
        self.feed = Gated(width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, mask):
        x = x + self.drop(self.attention(self.norms[0](x), mask))
        return x + self.drop(self.feed(self.norms[1](x)))


class Decoder(nn.Module):
    def __init__(self, words=19, width=16, layers=2, limit=12):
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.places = nn.Embedding(limit, width)
        self.layers = nn.ModuleList(Layer(width, 4, 2) for _ in range(layers))
        self.norm = RootNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.apply(self.start)

    @staticmethod
    def start(module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.2)

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = self.tokens(tokens) + self.places(torch.arange(length))
        for layer in self.layers:
            x = checkpoint(layer, x, mask, use_reentrant=False)
        return self.head(self.norm(x))
