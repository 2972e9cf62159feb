"""The network."""

import torch
from torch import nn

from small_trainer.scaling import normalise


class Clipped(torch.autograd.Function):
    """The identity, with gradients kept within bounds."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clamp(-0.01, 0.01)


class Net(nn.Module):
    """Two layers and a gate."""

    def __init__(self, width):
        super().__init__()
        self.width = width
        self.inner = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        hidden = Clipped.apply(self.inner(x))
        gate = torch.softmax(normalise(hidden, self.width), -1)
        return self.head(hidden * gate)
