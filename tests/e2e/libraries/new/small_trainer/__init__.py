"""A small trainer, version 2: stands for an installed library."""

from small_trainer.trainer import Trainer

__all__ = ["Trainer"]
