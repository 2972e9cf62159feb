import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

CONFIG = {"words": 20, "width": 12, "layers": 2, "drop": 0.2}


class Language(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config["words"], config["width"], padding_idx=0)
        self.rnn = nn.LSTM(
            config["width"], config["width"], config["layers"], batch_first=True, dropout=config["drop"]
        )
        self.drop = nn.Dropout(config["drop"])
        self.project = nn.Linear(config["width"], config["words"])
        self.project.weight = self.embed.weight

    def forward(self, tokens, lengths):
        inside = self.drop(self.embed(tokens))
        packed = pack_padded_sequence(inside, lengths, batch_first=True, enforce_sorted=False)
        states, (last, _) = self.rnn(packed)
        states, _ = pad_packed_sequence(states, batch_first=True)
        return self.project(self.drop(states)), last[-1]


def loss_of(logits, targets, summary, weight=0.01):
    picked = nn.functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=0)
    return picked + weight * summary.detach().pow(2).mean() * picked
