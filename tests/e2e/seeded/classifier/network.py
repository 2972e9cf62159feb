import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    def __init__(self, width, momentum=0.1):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width, momentum=momentum) for _ in range(2))

    def forward(self, x):
        shortcut = x
        y = F.relu(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y))
        return F.relu(y + shortcut)


class Network(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.stem = nn.Conv2d(3, settings.width, 3, padding=1)
        self.body = nn.Sequential(Residual(settings.width), Residual(settings.width))
        self.head = nn.Linear(settings.width, settings.classes)

    def features(self, x):
        return self.body(F.relu(self.stem(x))).mean(dim=(2, 3))

    def forward(self, x):
        return self.head(self.features(x))


def parameter_groups(model, decay):
    plain = [p for p in model.parameters() if p.ndim < 2]
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    return [
        {"params": decayed, "weight_decay": decay},
        {"params": plain, "weight_decay": 0.0},
    ]


class Average:
    def __init__(self, model, keep):
        self.keep = keep
        self.weights = {k: v.clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        for key, value in model.state_dict().items():
            mine = self.weights[key]
            if value.dtype.is_floating_point:
                mine.lerp_(value, 1 - self.keep)
            else:
                mine.copy_(value)
