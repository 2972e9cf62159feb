"""Train a character-level GPT for a few steps and print its losses."""

import torch
from config import Config, from_command_line
from data import Corpus
from model import CharGPT
from optim import build_optimizer, build_schedule
from torch import nn
from torch.nn import functional


def loss_of(model: nn.Module, corpus: Corpus, part: str, batch: int) -> torch.Tensor:
    """Mean cross-entropy in nats per character over one random batch."""
    tokens, targets = corpus.sample(part, batch)
    logits = model(tokens)
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.no_grad()
def evaluate(model: nn.Module, corpus: Corpus, config: Config) -> float:
    """Validation loss without dropout; the model is left in training mode."""
    model.eval()
    loss = loss_of(model, corpus, "validation", config.batch)
    model.train()
    return loss.item()


def train(config: Config) -> nn.Module:
    """Run the whole training and return the trained model."""
    torch.manual_seed(config.seed)
    corpus = Corpus(config.context, config.seed)
    model = CharGPT(corpus.vocabulary, config)
    optimizer = build_optimizer(model, config)
    schedule = build_schedule(optimizer, config)
    for step in range(1, config.steps + 1):
        loss = loss_of(model, corpus, "train", config.batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        schedule.step()
        line = f"step {step:3d} train {loss.item():.4f}"
        if step % config.evaluate_every == 0 or step == config.steps:
            line += f" validation {evaluate(model, corpus, config):.4f}"
        print(line, flush=True)
    return model


if __name__ == "__main__":
    # Faster at this size, and the bits do not depend on the number of cores.
    torch.set_num_threads(1)
    train(from_command_line())
