"""Replicas, sharded parameters and tensor parallelism on gloo, with any even number of ranks."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.up, self.down = nn.Linear(width, 16), nn.Linear(16, width)

    def forward(self, x):
        return self.down(functional.silu(self.up(x)))


def replicas(rank):
    torch.manual_seed(0)
    model = DistributedDataParallel(Net(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(16, 8), torch.randn(16, 8))
    sampler = DistributedSampler(data, seed=3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(DataLoader(data, batch_size=2, sampler=sampler)):
            last = number % 2 == 1
            with torch.enable_grad() if last else model.no_sync():
                functional.mse_loss(model(x), y).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
    return sum(parameter.double().sum() for parameter in model.parameters())


def sharded(mesh, rank):
    torch.manual_seed(1)
    model = nn.Sequential(Net(), Net())
    for part in model:
        fully_shard(part, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    split = parallelize_module(
        Net(), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()}
    )
    optimizer = torch.optim.SGD([*model.parameters(), *split.parameters()], lr=0.1, foreach=False)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8, generator=generator)).square().mean()
        loss = loss + split(torch.ones(4, 8)).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    parameter = next(model.parameters())
    assert isinstance(parameter, DTensor)
    return parameter.full_tensor().double().sum(), loss


def collectives(mesh, rank):
    mine = torch.arange(4.0) + rank
    work = dist.all_reduce(mine, async_op=True)
    other = torch.ones(2) * rank
    work.wait()
    into = [torch.empty(2) for _ in range(dist.get_world_size())]
    dist.all_gather(into, other)
    if rank == 0:
        dist.send(mine, 1)
    elif rank == 1:
        dist.recv(mine, 0)
    tensor = distribute_tensor(torch.arange(16.0).reshape(4, 4), mesh["tp"], [Shard(0)])
    product = (tensor @ tensor.redistribute(placements=[Replicate()])).full_tensor()
    return mine.sum(), torch.stack(into).sum(), product.sum()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
    results = [replicas(rank), *sharded(mesh, rank), *collectives(mesh, rank)]
    line = f"rank {rank} " + " ".join(repr(result.item()) for result in results)
    os.write(1, f"{line} {torch.get_rng_state().sum().item()}\n".encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
