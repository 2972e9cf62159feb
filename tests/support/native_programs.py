"""Programs with calls of many kinds, for tests that compare the native half with the Python one."""

import dataclasses
import operator
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from opguard.core._site import site


@dataclasses.dataclass
class Batch:
    features: torch.Tensor
    weight: float


class Residual(nn.Module):
    """A module of the workload with leaf modules, a buffer, and a child in another mode."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.project = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.project.weight
        self.drop = nn.Dropout(0.5)
        self.register_buffer("seen", torch.zeros(()))
        self.register_parameter("absent", None)

    def forward(self, features: torch.Tensor) -> dict[str, torch.Tensor]:
        site(10, self.seen.add_)(1)
        hidden = site(11, self.project)(site(12, self.norm)(features))
        hidden = site(13, self.drop)(site(14, functional.relu)(hidden, inplace=True))
        return {"out": features + site(15, self.tied)(hidden), "scale": 0.5}


class Renamed(nn.Module):
    """A module whose class has its own way of naming parameters and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.BatchNorm1d(3)

    def named_parameters(self, *args, **kwargs):
        return ((f"my.{name}", p) for name, p in super().named_parameters(*args, **kwargs))

    def named_buffers(self, *args, **kwargs):
        return ((f"my.{name}", b) for name, b in super().named_buffers(*args, **kwargs))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.inner(features)


def modules() -> None:
    model = Residual()
    model.norm.eval()
    for _ in range(2):
        result = site(0, model)(torch.randn(3, 4))
        site(1, result["out"].sum().backward)()
    site(2, model.project.forward)(torch.ones(4))
    site(3, model.load_state_dict)(model.state_dict())
    site(4, model.train)(False)
    site(5, model)(features=torch.randn(2, 4))
    renamed = Renamed()
    site(6, renamed)(torch.randn(5, 3))
    site(6, renamed.eval)()
    site(6, renamed)(torch.randn(5, 3))
    site(7, nn.LazyLinear(2))(torch.ones(1, 3))
    site(8, nn.Linear)(2, 2)
    site(8, lambda module: module)(nn.Linear(2, 1))
    site(9, nn.Embedding(4, 2, max_norm=0.1))(torch.tensor([0, 1]))


def optimizers() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    rest = nn.Parameter(torch.ones(2))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    groups = [{"params": [rest], "lr": torch.tensor(0.5)}, {"params": [nn.Parameter(rest.clone())]}]
    adam = torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.9), foreach=False)

    def closure():
        site(1, sgd.zero_grad)()
        loss = site(2, model)(torch.ones(2, 3)).square().mean()
        site(3, loss.backward)()
        return loss

    def library_step():
        adam.step()

    for set_to_none in (True, False):
        site(0, closure)()
        site(4, nn.utils.clip_grad_norm_)(model.parameters(), 0.01)
        site(5, sgd.step)()
        rest.grad = torch.ones(2)
        site(6, library_step)()
        site(7, adam.step)()
        site(8, adam.zero_grad)(set_to_none)
    site(9, sgd.step)(closure)
    site(10, sgd.load_state_dict)(sgd.state_dict())
    site(11, sgd.add_param_group)({"params": [nn.Parameter(torch.zeros(1))]})
    with torch.no_grad():
        for parameter in model.parameters():
            site(12, parameter.sub_)(parameter.grad, alpha=0.1)
            site(13, parameter.data.mul_)(0.5)
            site(13, parameter.grad.data.zero_)()


def functions_of_the_workload() -> None:
    def draw(batch, *, times=1):
        random.random()
        np.random.rand()
        torch.rand(1)
        return [batch.features * times, batch]

    def gauss():
        return random.gauss(0.0, 1.0)

    def write(features):
        features[0] = 7.0
        return

    x = torch.ones(3, requires_grad=True)
    site(0, draw)(Batch(x, 2.0), times=2)
    site(1, gauss)()
    site(1, gauss)()
    site(2, write)(torch.ones(3))
    site(2, write)(np.ones(3))
    site(3, operator.iadd)([1], [x])
    site(4, torch.empty)(2)
    site(4, torch.zeros_like)(x.to_sparse())
    site(5, lambda: (x * 2, {"a": (x.double(), np.zeros(2))}, "text"))()[0].sum().backward()
    site(6, nn.init.ones_)(torch.empty(2))
    site(7, torch.manual_seed)(1)
    site(8, x.detach().numpy)()
    site(9, torch.ones(2, requires_grad=True).sum().backward)()
    site(10, iter)([1, 2]).__next__()
    site(11, torch.autograd.grad)((x * x).sum(), [x])
