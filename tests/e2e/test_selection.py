"""A limited recording: less is instrumented and recorded, and every report says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opguard.core.selection import Selection
from opguard.tools.launch.selection import takes_callsite
from opguard_e2e import make_checkout, run_tool

PROGRAM = """\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))


def main():
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(5):
        optimizer.zero_grad()
        net(torch.randn(2, 3)).square().mean().backward()
        optimizer.step()
    print(sum(p.sum().item() for p in net.parameters()))


main()
"""


def test_diff_records_what_was_asked_for_and_says_what_it_was_limited_to(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text(PROGRAM)
    checkout = make_checkout(tmp_path / "source", tmp_path / "checkout")
    limits = ("--steps", "1,3-", "--callsites", "*:Net.forward", "--phases", "forward")
    completed = run_tool(
        *("diff", "--json", "--baseline", str(checkout.path), "--candidate", str(checkout.path)),
        *("--output", str(tmp_path / "out"), *limits),
    )
    assert completed.returncode == 0, completed.stderr
    document = json.loads(completed.stdout)
    # Three calls in each of the steps 1, 3 and 4.
    assert document["observed"]["calls"] == {"baseline": 9, "candidate": 9}
    assert [warning["text"] for warning in document["warnings"]] == [
        "both captures are limited to steps 1,3- and the phases forward and the callsites "
        "*:Net.forward: what lies outside was not recorded"
    ]
    trace = tmp_path / "out" / "baseline" / "trace"
    result = json.loads((trace / "result.json").read_text())
    assert result["selection"] == {
        "steps": "1,3-",
        "phases": ["forward"],
        "callsites": ["*:Net.forward"],
        "levels": None,
    }
    plan = json.loads((trace / "plan.json").read_text())
    assert {site["qualname"] for site in plan["sites"]} == {"Net.forward"}
    assert any("outside the selection" in entry["reason"] for entry in plan["excluded"])
    checkout.assert_untouched()


@pytest.mark.parametrize("patterns", ["*", "a.py:f", "*:g*", "!a.py", "*,!*::h", "a?py:*:[h]"])
def test_both_halves_read_patterns_alike(patterns: str) -> None:
    sites = [(f, q, c) for f in ("a.py", "b/a.py") for q in ("f", "gg") for c in ("h", "i")]
    chosen = Selection.of(callsites=patterns)
    split = tuple(patterns.split(","))
    assert [chosen.takes_callsite(*s) for s in sites] == [takes_callsite(split, *s) for s in sites]
