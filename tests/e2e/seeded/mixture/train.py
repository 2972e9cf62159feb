import torch
from layers import Batch, forward

generator = torch.Generator().manual_seed(11)
params = {
    "gate": torch.randn(6, 3, generator=generator) * 0.3,
    "w": torch.randn(3, 6, 8, generator=generator) * 0.3,
    "b": torch.zeros(3, 8),
    "head": torch.randn(8, 1, generator=generator) * 0.3,
}
for value in params.values():
    value.requires_grad_(True)
momentum = {name: torch.zeros_like(value) for name, value in params.items()}


def make_batch():
    x = torch.randn(16, 6, generator=generator)
    return Batch(x, x[:, :1] * x[:, 1:2])


def penalty(params):
    return sum(value.pow(2).sum() for value in params.values()) * 1e-3


for step in range(4):
    batch = make_batch()
    error = forward(params, batch.x) - batch.y
    loss = error.square().mean() + penalty(params)
    gradients = torch.autograd.grad(loss, list(params.values()))
    with torch.no_grad():
        for (name, value), gradient in zip(params.items(), gradients):
            momentum[name].mul_(0.9).add_(gradient)
            value.sub_(momentum[name], alpha=0.05)
    print(step, f"{loss.item():.6f}")
