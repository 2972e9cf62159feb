"""The text as token ids, split into a training and a validation part."""

from pathlib import Path

import torch

TEXT = Path(__file__).with_name("opticks.txt")


class Corpus:
    """Characters of one text; the last tenth is held out for validation."""

    def __init__(self, context: int, seed: int) -> None:
        text = TEXT.read_text(encoding="ascii")
        alphabet = sorted(set(text))
        index = {character: number for number, character in enumerate(alphabet)}
        tokens = torch.tensor([index[character] for character in text])
        cut = len(tokens) * 9 // 10
        self.vocabulary = len(alphabet)
        self.parts = {"train": tokens[:cut], "validation": tokens[cut:]}
        self.context = context
        self.generator = torch.Generator().manual_seed(seed)

    def sample(self, part: str, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Random windows of a part, ``[batch, context]``, and the same one character later."""
        tokens = self.parts[part]
        starts = torch.randint(len(tokens) - self.context, (batch,), generator=self.generator)
        positions = starts[:, None] + torch.arange(self.context + 1)
        windows = tokens[positions]
        return windows[:, :-1], windows[:, 1:]
