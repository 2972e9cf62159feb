"""Discovery runs in processes of their own, since its mode stays active until the end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import xorsig

RUNNER = """
import sys
sys.path.insert(0, {checkout!r})
from pathlib import Path
from opguard.core.discovery import Discovery
discovery = Discovery(Path({checkout!r}), Path({capture!r}), Path({staging!r}),
    capture_id="ab" * 16, rank=0, regions=4)
discovery.start()
source = Path({checkout!r}, "script.py")
exec(compile(source.read_bytes(), str(source), "exec"), {{"__name__": "__main__"}})
print(discovery.close())
"""


@pytest.fixture
def observe(tmp_path: Path):
    def observe(script: str, **files: str) -> tuple[dict[str, set[str]], str]:
        checkout = tmp_path / "checkout"
        checkout.mkdir()
        (checkout / "script.py").write_text(script)
        for name, text in files.items():
            (checkout / f"{name}.py").write_text(text)
        capture, staging = tmp_path / "capture", tmp_path / "staging"
        staging.mkdir()
        code = RUNNER.format(checkout=str(checkout), capture=str(capture), staging=str(staging))
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return spans_of(capture, tmp_path / "tables", checkout), done.stdout

    return observe


def spans_of(capture: Path, tables: Path, checkout: Path) -> dict[str, set[str]]:
    """Source text of every observed expression, with the operators that ran in it directly."""
    xorsig.materialize(str(capture / "rank-0"), str(tables), capture_id="ab" * 16, rank=0)
    polars = pytest.importorskip("polars", reason="reading Parquet in this test needs polars")
    found: dict[str, set[str]] = {}
    for row in polars.read_parquet(tables / "spans.parquet").iter_rows(named=True):
        lines = Path(row["file"]).read_text().splitlines()
        if row["line"] == row["end_line"]:
            text = lines[row["line"] - 1].encode()[row["col"] : row["end_col"]].decode()
        else:
            text = lines[row["line"] - 1][row["col"] :] + " ..."
        operators = found.setdefault(text, set())
        if row["flags"] & 1:
            operators.add(row["operator"])
    return found


def test_innermost_expression_gets_the_operator_and_enclosing_ones_are_listed(observe) -> None:
    spans, _ = observe(
        "import torch\nimport helper\nx = torch.ones(3)\ny = helper.double(x) + 1\n",
        helper="def double(x):\n    return x * 2\n",
    )
    assert spans == {
        "torch.ones(3)": {"aten.ones.default"},
        "x * 2": {"aten.mul.Tensor"},
        "helper.double(x)": set(),
        "helper.double(x) + 1": {"aten.add.Tensor"},
    }


def test_operations_of_torch_modules_belong_to_the_call_of_the_checkout(observe) -> None:
    spans, _ = observe("import torch\nm = torch.nn.Linear(2, 2)\ny = m(torch.ones(1, 2))\n")
    assert "aten.addmm.default" in spans["m(torch.ones(1, 2))"]
    assert "torch.nn.Linear(2, 2)" in spans


def test_backward_operators_belong_to_the_backward_call(observe) -> None:
    spans, _ = observe(
        "import torch\nx = torch.ones(2, requires_grad=True)\nz = (x * x).sum()\nz.backward()\n"
    )
    assert "aten.mul.Tensor" in spans["z.backward()"]


def test_equal_code_in_two_files_is_observed_in_both(observe, tmp_path) -> None:
    text = "import torch\n\n\ndef f(x):\n    return x * 2\n"
    observe("import torch, a, b\na.f(torch.ones(1))\nb.f(torch.ones(1))\n", a=text, b=text)
    polars = pytest.importorskip("polars", reason="reading Parquet in this test needs polars")
    spans = polars.read_parquet(tmp_path / "tables" / "spans.parquet")
    files = {Path(file).name for file in spans.filter(operator="aten.mul.Tensor")["file"]}
    assert files == {"a.py", "b.py"}


def test_generated_code_and_other_threads_are_not_attributed(observe) -> None:
    spans, output = observe(
        "import threading\nimport torch\n"
        "exec('torch.ones(2) + 1')\n"
        "thread = threading.Thread(target=lambda: torch.zeros(2))\n"
        "thread.start()\nthread.join()\n"
    )
    assert set(spans) == {"exec('torch.ones(2) + 1')"}
    totals = eval(output)
    assert totals["operators"] == 2


def test_compiled_code_still_compiles_under_discovery(observe) -> None:
    _, output = observe(
        "import torch\n"
        "def f(x):\n    return torch.sin(x) + torch.cos(x)\n"
        "g = torch.compile(f, backend='eager', fullgraph=True)\n"
        "y = g(torch.ones(3))\n"
        "from torch._dynamo.utils import counters\n"
        "print(counters['stats']['unique_graphs'])\n"
    )
    assert output.splitlines()[0] == "1"


def test_forked_child_records_nothing(observe) -> None:
    spans, output = observe(
        "import os\nimport torch\n"
        "pid = os.fork()\n"
        "if pid == 0:\n    torch.ones(3) * 3\n    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "x = torch.zeros(1)\n"
    )
    assert set(spans) == {"torch.zeros(1)"}
    assert json.dumps(eval(output)["operators"]) == "1"


def test_parameter_without_a_shape_does_not_end_the_observation(observe) -> None:
    script = """
import torch
lazy = torch.nn.LazyLinear(2)
y = lazy(torch.ones(1, 3))
z = y * 2
"""
    spans, _ = observe(script)
    assert "y * 2" in spans


def test_lines_of_a_library_and_modules_of_modules_make_a_call_opaque(
    observe, tmp_path: Path
) -> None:
    library = tmp_path / "elsewhere"
    library.mkdir()
    (library / "trainer.py").write_text("def train(x):\n    return x.exp().sum()\n")
    observe(
        f"import sys\nsys.path.insert(0, {str(library)!r})\n"
        "import torch, trainer\n"
        "x = torch.ones(2, 2)\n"
        "trainer.train(x)\n"
        "torch.nn.Sequential(torch.nn.Linear(2, 2))(x)\n"
        "torch.nn.functional.relu(x)\n"
    )

    polars = pytest.importorskip("polars", reason="reading Parquet in this test needs polars")
    spans = polars.read_parquet(tmp_path / "tables" / "spans.parquet")
    opaque = spans.filter((polars.col("flags") & 2) != 0)["line"].unique().sort().to_list()
    assert opaque == [5, 6]


def test_torch_jit_trace_with_its_check_works_as_without_a_mode(observe) -> None:
    _, printed = observe(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x.relu().view(-1) * 2 + 0.5\n"
        "traced = torch.jit.trace(Net(), torch.ones(2, 3))\n"
        "print(traced(torch.ones(2, 3)).sum().item(), str(traced.graph).count('aten::'))\n"
    )

    assert "15.0 4" in printed
