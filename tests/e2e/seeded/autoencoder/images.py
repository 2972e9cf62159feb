import torch
from torch.utils.data import DataLoader, Dataset


class Stripes(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(7)
        self.images = torch.rand(count, 1, 8, 8, generator=generator)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        return image * 0.5 + 0.25


def batches(seed):
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(Stripes(12), batch_size=4, shuffle=True, generator=generator)
