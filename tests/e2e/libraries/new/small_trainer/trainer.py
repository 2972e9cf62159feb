"""The loop, with hooks."""

import functools

import torch

from small_trainer.model import Net
from small_trainer.optim import HeavyBall


def reported(function):
    """Leave room for reports around a method."""

    @functools.wraps(function)
    def wrapper(self, *args, **kwargs):
        self.reports.append(function.__name__)
        return function(self, *args, **kwargs)

    return wrapper


class Trainer:
    """Trains a network of its own on random numbers."""

    def __init__(self, width, seed):
        torch.manual_seed(seed)
        self.reports = []
        self.model = Net(width)
        self.optimizer = HeavyBall(self.model.parameters())

    @reported
    def train(self, steps):
        """Run some steps and give the last loss."""
        for _ in range(steps):
            x = torch.randn(4, self.model.width)
            y = x.sum(-1, keepdim=True)
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()
