"""Optimizers."""

import torch


class HeavyBall(torch.optim.Optimizer):
    """Gradient descent with momentum."""

    def __init__(self, params, lr=0.1, momentum=0.9):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(p)
                velocity = state["velocity"]
                velocity.mul_(group["momentum"]).add_(p.grad, alpha=1 - group["momentum"])
                p.add_(velocity, alpha=-group["lr"])
