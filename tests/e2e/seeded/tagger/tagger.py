import math

import torch.nn.functional as F
from torch import nn


class Tagger(nn.Module):
    def __init__(self, words=23, width=16, tags=5):
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=0)
        self.encode = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.query = nn.Linear(2 * width, width)
        self.key = nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(2 * width, tags)
        self.width = width

    def attend(self, states, keep):
        scores = self.query(states) @ self.key(states).transpose(1, 2)
        scores = scores / math.sqrt(self.width)
        scores = scores.masked_fill(~keep[:, None, :], -1e9)
        return F.softmax(scores, dim=-1) @ states

    def forward(self, words):
        keep = words != 0
        states, _ = self.encode(self.embed(words))
        states = states + self.attend(states, keep)
        return self.out(self.drop(states))


def loss_of(logits, tags):
    return F.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=-1)
