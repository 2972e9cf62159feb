"""AdamW with decay on matrices only, and a warm-up followed by a cosine."""

import math

import torch
from config import Config
from torch import nn


def build_optimizer(model: nn.Module, config: Config) -> torch.optim.AdamW:
    """Biases and normalisation weights are not decayed."""
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.95))


def build_schedule(
    optimizer: torch.optim.Optimizer, config: Config
) -> torch.optim.lr_scheduler.LambdaLR:
    """Linear warm-up, then half a cosine down to a tenth of the rate."""

    def factor(step: int) -> float:
        if step < config.warmup:
            return (step + 1) / config.warmup
        progress = (step - config.warmup) / max(1, config.steps - config.warmup)
        return 0.1 + 0.45 * (1.0 + math.cos(math.pi * progress))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
