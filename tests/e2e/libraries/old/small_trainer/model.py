"""The network."""

import torch
from torch import nn


class Clipped(torch.autograd.Function):
    """The identity, with gradients kept within bounds."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clamp(-0.01, 0.01)


def scale_scores(scores, width):
    """Scores with a variance of about one."""
    root = width**0.5
    return scores / root


class Net(nn.Module):
    """Two layers and a gate."""

    def __init__(self, width):
        super().__init__()
        self.width = width
        self.inner = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        hidden = Clipped.apply(self.inner(x))
        gate = torch.softmax(scale_scores(hidden, self.width), -1)
        return self.head(hidden * gate)
