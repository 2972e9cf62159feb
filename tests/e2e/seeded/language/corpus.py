import random

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, RandomSampler

PAD, START = 0, 1


class Sentences(Dataset):
    def __init__(self, count=16, words=20):
        source = random.Random(5)
        self.rows = [
            [START, *(source.randrange(2, words) for _ in range(source.randrange(3, 8)))]
            for _ in range(count)
        ]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return torch.tensor(self.rows[index])


def collate(rows):
    lengths = torch.tensor([len(row) for row in rows])
    return pad_sequence(rows, batch_first=True, padding_value=PAD), lengths


def loader(seed, size=4):
    data = Sentences()
    generator = torch.Generator()
    generator.manual_seed(seed)
    return DataLoader(data, size, sampler=RandomSampler(data, generator=generator), collate_fn=collate)
