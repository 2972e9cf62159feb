"""Sizes and rates of the training, and its command line."""

import argparse
from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """Everything that decides a run; two runs with equal values are bitwise equal."""

    seed: int = 0
    steps: int = 20
    batch: int = 16
    context: int = 64
    width: int = 64
    heads: int = 4
    layers: int = 2
    dropout: float = 0.1
    learning_rate: float = 4e-3
    warmup: int = 4
    weight_decay: float = 0.1
    clip: float = 1.0
    evaluate_every: int = 10


def from_command_line() -> Config:
    """Read ``--seed`` and ``--steps``; all other values are the defaults."""
    parser = argparse.ArgumentParser(description="Train a character-level GPT on one text.")
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--steps", type=int, default=Config.steps)
    options = parser.parse_args()
    return Config(seed=options.seed, steps=options.steps)
