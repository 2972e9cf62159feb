"""Two captures of one deterministic program are equal record by record, apart from times."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from opguard_warm import warm_launcher

from opguard.tools.actions.tables import materialize_capture
from opguard_e2e import EXAMPLE, Protocol, make_checkout

PROGRAM = '''\
"""A training with dropout, loader workers, recomputation and a stateful optimizer."""

import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.randn(6) + index, torch.tensor(index % 3)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.GELU(), torch.nn.Dropout(0.3)
        )
        self.last = torch.nn.Linear(16, 3)

    def forward(self, x):
        return self.last(checkpoint(self.first, x, use_reentrant=False))


if __name__ == "__main__":
    torch.manual_seed(3)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for epoch in range(2):
        for x, y in DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=2):
            loss = torch.nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"{loss.item():.6f}")
'''

TIMES = ("time_begin_ns", "time_end_ns", "time_ns")


@pytest.fixture(scope="module")
def launcher() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, warm_launcher(Path(folder)) as command:
        yield command


def records(trace: dict[str, object], folder: Path) -> dict[str, pl.DataFrame]:
    """Every table of rank 0 without times, in order; threads are numbered as they appear."""
    made = materialize_capture(Path(str(trace["capture"])), str(trace["capture_id"]), [0], folder)
    tables: dict[str, pl.DataFrame] = {}
    for path in sorted(made.folders[0].glob("*.parquet")):
        table = pl.read_parquet(path)
        if path.stem == "calls":
            table = table.sort("call")
        if "thread" in table.columns:
            order = {
                thread: n for n, thread in enumerate(table["thread"].unique(maintain_order=True))
            }
            table = table.with_columns(pl.col("thread").replace_strict(order))
        tables[path.stem] = table.drop(TIMES, strict=False)
    return tables


@pytest.mark.parametrize("name", ["example", "loader"])
def test_two_captures_of_one_program_are_equal_record_by_record(
    name: str, launcher: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").write_text(PROGRAM)
    checkout = make_checkout(
        EXAMPLE / "baseline" if name == "example" else source, tmp_path / "checkout"
    )
    protocol = Protocol(tmp_path)
    fields = protocol.launch_fields(
        checkout.path, "train.py", *(("--steps", "3") if name == "example" else ())
    )
    fields["workload"]["launcher"] = launcher.split()
    discovery = protocol.call("discover", **fields)
    plan = protocol.call("prepare", workload=fields["workload"], discovery=discovery)
    traces = [protocol.call("trace", **fields, plan=plan) for _ in range(2)]

    first, second = (records(trace, tmp_path / f"tables-{n}") for n, trace in enumerate(traces))

    assert first.keys() == second.keys()
    assert first["tensors"].height > 200
    for table, found in first.items():
        assert found.equals(second[table]), table
