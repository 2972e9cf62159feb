import random

import numpy as np
import torch
from tagger import Tagger, loss_of


class Trainer:
    def __init__(self, seed):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        self.model = Tagger()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-3, betas=(0.9, 0.99))
        self.average = {}

    def batch(self):
        lengths = np.random.randint(3, 7, size=4)
        words = torch.zeros(4, 7, dtype=torch.long)
        tags = torch.full((4, 7), -1)
        for row, length in enumerate(lengths):
            words[row, :length] = torch.randint(1, 23, (int(length),))
            tags[row, :length] = words[row, :length] % 5
        return words, tags

    def update(self):
        self.model.train()
        words, tags = self.batch()
        loss = loss_of(self.model(words), tags)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss

    def remember(self):
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                kept = self.average.get(name, value)
                self.average[name] = kept * 0.9 + value * 0.1

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        words, tags = self.batch()
        return loss_of(self.model(words), tags)
