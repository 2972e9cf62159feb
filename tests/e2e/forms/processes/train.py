"""Loader workers and other child processes under every start method; leaves by os._exit."""

import atexit
import multiprocessing
import os
import sys

import torch
import torch.multiprocessing as tmp
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


class Rows(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((3,), float(index)).cumsum(0) + torch.rand(1) * 0, index


class Endless(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        for number in range(4):
            yield torch.tensor([float(number), float(worker.id if worker else 0)]).square()


def seed_worker(worker):
    torch.manual_seed(worker)


def collate(rows):
    return torch.stack([row for row, _ in rows]) * 2, torch.tensor([index for _, index in rows])


def loaders():
    total = torch.zeros(())
    for method, workers in (("fork", 2), ("spawn", 1), ("forkserver", 1)):
        generator = torch.Generator().manual_seed(0)
        loader = DataLoader(
            Rows(),
            batch_size=4,
            shuffle=True,
            num_workers=workers,
            collate_fn=collate,
            worker_init_fn=seed_worker,
            generator=generator,
            multiprocessing_context=method,
        )
        for batch, index in loader:
            total = total + (batch.sum(1) * index).sum()
    for item in DataLoader(Endless(), batch_size=2, num_workers=1, persistent_workers=True):
        total = total + item.sum()
    return total


def double_in_place(queue, shared, received):
    shared.mul_(2)
    queue.put(shared.sum() + 1)
    received.wait(120)  # a queued tensor lives in the process that sent it


def children():
    shared = torch.ones(4).share_memory_()
    context = tmp.get_context("spawn")
    queue, taken = context.Queue(), context.Event()
    child = context.Process(target=double_in_place, args=(queue, shared, taken))
    child.start()
    received = queue.get(timeout=120).clone()
    taken.set()
    child.join()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        squares = pool.map(abs, [-1, 2])
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, str(int(torch.arange(10).sum())).encode())
        os._exit(5)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return received, shared, squares, os.read(reader, 9), status


def train(total):
    torch.manual_seed(1)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        (model(torch.randn(4, 3)).square().mean() * total / 1000).backward()
        optimizer.step()
    return [parameter.tolist() for parameter in model.parameters()]


def main():
    torch.set_num_threads(1)
    atexit.register(print, "an exit handler ran")
    total = loaders()
    print(f"loaders {total.item()}")
    print("children", *children())
    print("model", *train(total))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
