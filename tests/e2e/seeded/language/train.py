import torch
from corpus import loader
from model import CONFIG, Language, loss_of


class Run:
    def __init__(self):
        torch.manual_seed(1)
        self.model = Language(CONFIG)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.1
        )
        self.cosine = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=8)
        self.losses = []

    def step(self, tokens, lengths):
        logits, summary = self.model(tokens[:, :-1], lengths - 1)
        loss = loss_of(logits, tokens[:, 1:], summary)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.cosine.step()
        self.losses.append(loss.detach())

    def epoch(self, number):
        self.model.train()
        for tokens, lengths in loader(seed=number):
            self.step(tokens, lengths)
        return torch.stack(self.losses).mean()


run = Run()
for number in range(2):
    print(number, f"{run.epoch(number):.5f}")
