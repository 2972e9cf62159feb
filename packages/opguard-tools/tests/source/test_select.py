"""Tests of the selection of callsites."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from opguard.tools.digests import sha256
from opguard.tools.source import (
    NothingToInstrumentError,
    ObservedSpan,
    ObservedSummary,
    Peer,
    PlanFile,
    Selection,
    Site,
    SpanFlag,
    instrument,
    select_sites,
)
from opguard.tools.source.plan import DepthChoice

MODEL = """\
import torch

def forward(x, w):
    h = torch.matmul(x, w)  # projection
    h += 1
    return h.sum() if (h > 0).all() else h[0]

forward(1, 2)
"""


def seen(
    root: Path,
    file: str,
    text: str,
    *,
    operators: dict[str, int] | None = None,
    flags: int = SpanFlag.INNERMOST,
    occurrence: int = 0,
) -> ObservedSpan:
    """A span for the first occurrence of a text in a file."""
    path = Path(os.path.realpath(root / file))
    source = path.read_text(encoding="utf-8")
    start = -1
    for _ in range(occurrence + 1):
        start = source.index(text, start + 1)
    line = source.count("\n", 0, start) + 1
    col = start - (source.rfind("\n", 0, start) + 1)
    found = {"aten.op": 2} if operators is None else operators
    return ObservedSpan(
        str(path), "f", line, line, col, col + len(text), found, sum(found.values()), flags
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Callable[[str, dict[str, str]], Path]:
    def make(name: str, files: dict[str, str]) -> Path:
        for path, text in files.items():
            target = tmp_path / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        return tmp_path / name

    return make


Checkout = Callable[[str, dict[str, str]], Path]


def brief(selection: Selection) -> list[tuple[str, int, str, str, bool]]:
    return [
        (site.file, site.line, site.kind, site.callee, site.observed) for site in selection.sites
    ]


@pytest.mark.parametrize("depth", ["call", "aten"])
def test_a_chosen_depth_holds_for_every_callsite(depth: DepthChoice, checkout: Checkout) -> None:
    root = checkout("a", {"model.py": MODEL})
    spans = [
        seen(root, "model.py", "torch.matmul(x, w)"),
        seen(root, "model.py", "forward(1, 2)", operators={}, flags=SpanFlag.OPAQUE),
    ]

    selection = select_sites(root, spans, depth=depth)

    assert [site.depth for site in selection.sites] == [depth, depth]


def test_callsites_that_the_user_does_not_want_are_left_out_and_counted(checkout: Checkout) -> None:
    root = checkout("a", {"model.py": MODEL, "other.py": "y = f(1)\n"})
    spans = [
        seen(root, "model.py", "torch.matmul(x, w)"),
        seen(root, "model.py", "h += 1"),
        seen(root, "other.py", "f(1)"),
    ]

    selection = select_sites(root, spans, takes=lambda file, function, callee: callee == "+=")

    assert brief(selection) == [("model.py", 5, "augmented", "+=", True)]
    assert {(entry.path, entry.reason) for entry in selection.excluded} == {
        (file, "1 callsites are outside the selection") for file in ("model.py", "other.py")
    }


@pytest.mark.requirement("C2")
def test_observed_expressions_become_callsites(checkout: Checkout) -> None:
    root = checkout("a", {"model.py": MODEL})
    spans = [
        seen(root, "model.py", "h[0]", operators={"aten.select": 1}),
        seen(root, "model.py", "torch.matmul(x, w)", operators={"aten.mm": 3, "aten.t": 1}),
        seen(root, "model.py", "h += 1"),
        seen(root, "model.py", "forward(1, 2)", operators={}, flags=SpanFlag.OPAQUE),
    ]
    selection = select_sites(root, spans)
    content = MODEL.encode()
    assert selection.files == (
        PlanFile(path="model.py", size=len(content), sha256=sha256(content)),
    )
    assert brief(selection) == [
        ("model.py", 4, "call", "torch.matmul", True),
        ("model.py", 5, "augmented", "+=", True),
        ("model.py", 6, "subscript", "[]", True),
        ("model.py", 8, "call", "forward", True),
    ]
    assert selection.sites[0] == Site(
        id=1,
        file="model.py",
        line=4,
        end_line=4,
        col=8,
        end_col=26,
        qualname="forward",
        kind="call",
        callee="torch.matmul",
        text="torch.matmul(x, w)",
        statement=(4, 4),
        ordinal=0,
        depth="call",
        observed=True,
        operators=("aten.mm", "aten.t"),
        count=4,
    )
    assert [site.depth for site in selection.sites] == ["call", "call", "call", "aten"]
    assert [site.id for site in selection.sites] == [1, 2, 3, 4]
    assert selection.excluded == ()
    assert selection.observed_summary == ObservedSummary(1, 4, 7, 4, 0, 0)
    assert b"__opguard_site__(1, torch.matmul)(x, w)" in instrument(content, selection.sites)


@pytest.mark.requirement("C5")
def test_selection_does_not_depend_on_the_order_of_observations(checkout: Checkout) -> None:
    root = checkout("a", {"model.py": MODEL, "b.py": "x = f(1)\n"})
    spans = [
        seen(root, "model.py", "h[0]"),
        seen(root, "b.py", "f(1)"),
        seen(root, "model.py", "h > 0"),
    ]
    assert select_sites(root, spans) == select_sites(root, spans[::-1])


@pytest.mark.requirement("C3")
def test_files_that_must_stay_are_excluded_with_their_reasons(
    checkout: Checkout, tmp_path: Path
) -> None:
    call = "x = f(1)\n"
    root = checkout(
        "a",
        {
            "train.py": call,
            "lib/os.py": call,  # what the standard library's file is called in plans
            "venv/pyvenv.cfg": "",
            "venv/lib/x.py": call,
            "vendor/site-packages/x.py": call,
            ".git/hook.py": call,
            "__pycache__/x.py": call,
            ".opguard/x.py": call,
            "linked.py": call,
            "latin.py": call,
            "broken.py": call,
            "wrapped.py": "x = __opguard_site__(1, f)(1)\n",
        },
    )
    outside = checkout("b", {"other.py": call, "lib/site-packages/pkg/m.py": call})
    (root / "hard.py").hardlink_to(root / "linked.py")
    (root / "latin.py").write_bytes(b"x = f(1)\n\n# \xff\n")
    (root / "broken.py").write_text("x = f(1) (\n")
    (root / "gone.py").write_text(call)
    (root / "alias.py").symlink_to(outside / "other.py")
    names = [
        "train.py",
        "lib/os.py",
        "venv/lib/x.py",
        "vendor/site-packages/x.py",
        ".git/hook.py",
        "__pycache__/x.py",
        ".opguard/x.py",
        "linked.py",
        "latin.py",
        "broken.py",
        "gone.py",
        "alias.py",
    ]
    spans = [
        ObservedSpan(os.path.realpath(root / name), "<module>", 1, 1, 4, 8, {"op": 1}, 1, 1)
        for name in [*names, "wrapped.py"]
    ]
    (root / "gone.py").unlink()
    for file in (outside / "lib/site-packages/pkg/m.py", Path(os.path.realpath(os.__file__))):
        spans.append(ObservedSpan(str(file), "f", 1, 1, 4, 8, {"op": 1}, 1, 1))
    spans.append(ObservedSpan("<string>", "f", 1, 1, 4, 8, {"op": 1}, 1, 1))
    selection = select_sites(root, spans)
    assert [file.path for file in selection.files] == ["lib/os.py", "train.py"]
    assert len(selection.sites) == 2
    reasons = {entry.path: entry.reason for entry in selection.excluded}
    expected = {
        "venv/lib/x.py": "virtual environment venv",
        "vendor/site-packages/x.py": "installed package",
        ".git/hook.py": "inside .git",
        "__pycache__/x.py": "inside __pycache__",
        ".opguard/x.py": "inside .opguard",
        "linked.py": "2 hard links",
        "latin.py": "not valid utf-8",
        "broken.py": "syntax error",
        "gone.py": "no such file",
        "../b/other.py": "outside the checkout",
        "wrapped.py": "instrumented already",
        "site-packages/pkg/m.py": "outside the checkout: an installed package",
        "lib/os.py": "outside the checkout: the standard library",
        "<string>": "no file",
    }
    assert reasons.keys() == expected.keys()
    assert {path for path, part in expected.items() if part not in reasons[path]} == set()
    assert not any(path.startswith("/") for path in reasons)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser can read every file")
def test_unreadable_file_is_excluded(checkout: Checkout) -> None:
    root = checkout("a", {"train.py": "f(1)\n", "secret.py": "f(1)\n"})
    spans = [seen(root, "train.py", "f(1)"), seen(root, "secret.py", "f(1)")]
    (root / "secret.py").chmod(0)
    (entry,) = select_sites(root, spans).excluded
    assert entry.reason.startswith("unreadable")


@pytest.mark.requirement("C3")
def test_functions_and_expressions_left_out_are_listed_with_reasons(checkout: Checkout) -> None:
    source = (
        "import triton\n@triton.jit\ndef kernel(x):\n    return load(x)\n"
        "y = a < b < c\nif t: z = f(1)\n"
    )
    root = checkout("a", {"m.py": source})
    spans = [
        seen(root, "m.py", "load(x)"),
        seen(root, "m.py", "a < b < c"),
        seen(root, "m.py", "t:"),
        seen(root, "m.py", "import triton", flags=0),
        seen(root, "m.py", "f(1)"),
    ]
    selection = select_sites(root, spans)
    assert [site.callee for site in selection.sites] == ["f"]
    assert [entry.reason.partition(":")[0] for entry in selection.excluded] == [
        "function kernel (line 3) is compiled from its source by triton.jit",
        "line 4 (aten.op)",
        "line 5 (aten.op)",
        "line 6 (aten.op)",
    ]
    assert selection.observed_summary.unplaced == 4


@pytest.mark.requirement("C4")
def test_nothing_to_instrument_is_an_error_that_says_why(checkout: Checkout) -> None:
    root = checkout("a", {"m.py": "if t: pass\n"})
    spans = [
        seen(root, "m.py", "if t: pass", operators={"aten.is_nonzero": 7}),
        ObservedSpan("<string>", "f", 1, 1, 0, 1, {"aten.add": 2}, 2, 1),
    ]
    with pytest.raises(NothingToInstrumentError) as caught:
        select_sites(root, spans)
    error = caught.value
    assert error.error_type == "nothing_to_instrument"
    assert error.details["observed"]["operations"] == 9
    assert {entry["path"] for entry in error.details["excluded"]} == {"m.py", "<string>"}
    for part in ("9 tensor operations", "2 files", "m.py", "truth test", "<string>"):
        assert part in str(error)


def test_no_observations_are_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(NothingToInstrumentError) as caught:
        select_sites(tmp_path, [])
    assert caught.value.details["excluded"] == []


def test_what_the_peer_observed_in_a_shared_statement_is_recorded_here_too(
    checkout: Checkout,
) -> None:
    changed = MODEL.replace("def forward(x, w):\n", "def forward(inp, w):\n    # renamed\n")
    changed = changed.replace("(x, w)", "(inp, w)")
    own, other = checkout("a", {"model.py": MODEL}), checkout("b", {"model.py": changed})
    spans = [seen(own, "model.py", "h[0]")]
    peer = Peer(
        other,
        [
            seen(other, "model.py", "h[0]"),
            seen(other, "model.py", "torch.matmul(inp, w)", flags=SpanFlag.OPAQUE),
        ],
    )
    selection = select_sites(own, spans, peer)
    assert brief(selection) == [
        ("model.py", 4, "call", "torch.matmul", False),
        ("model.py", 6, "subscript", "[]", True),
    ]
    assert selection.sites[0].depth == "aten"
    assert selection.sites[0].count == 0
    assert selection.observed_summary.added == 1
    mirrored = select_sites(other, peer.spans, Peer(own, spans))
    assert [site.callee for site in mirrored.sites] == ["torch.matmul", "[]"]
    assert all(site.observed for site in mirrored.sites)


def test_every_call_in_a_statement_of_one_version_only_is_recorded(checkout: Checkout) -> None:
    changed = MODEL.replace("    h += 1\n", "    h = scale(h, len(x)) + super\n    log(locals())\n")
    own, other = checkout("a", {"model.py": changed}), checkout("b", {"model.py": MODEL})
    spans = [seen(own, "model.py", "h[0]")]
    peer = Peer(other, [seen(other, "model.py", "h[0]")])
    assert brief(select_sites(own, spans, peer)) == [
        ("model.py", 5, "call", "scale", False),
        ("model.py", 5, "call", "len", False),
        ("model.py", 6, "call", "log", False),
        ("model.py", 7, "subscript", "[]", True),
    ]


def test_file_observed_by_the_peer_alone_is_recorded_here(checkout: Checkout) -> None:
    files = {"model.py": MODEL, "loss.py": "def loss(x):\n    return norm(x)\n"}
    own, other = checkout("a", files), checkout("b", files)
    peer = Peer(other, [seen(other, "loss.py", "norm(x)")])
    assert brief(select_sites(own, [seen(own, "model.py", "h[0]")], peer)) == [
        ("loss.py", 2, "call", "norm", False),
        ("model.py", 6, "subscript", "[]", True),
    ]


def test_file_that_neither_side_observed_stays_as_it_is(checkout: Checkout) -> None:
    own = checkout("a", {"model.py": MODEL, "log.py": "write(1)\n"})
    other = checkout("b", {"model.py": MODEL, "log.py": "write(2)\n"})
    peer = Peer(other, [seen(other, "model.py", "h[0]")])
    selection = select_sites(own, [seen(own, "model.py", "h[0]")], peer)
    assert [file.path for file in selection.files] == ["model.py"]


def test_text_of_a_long_callsite_is_one_short_line(checkout: Checkout) -> None:
    root = checkout("a", {"m.py": "x = f(a,\n      " + "b, " * 60 + ")\n"})
    span = ObservedSpan(os.path.realpath(root / "m.py"), "<module>", 1, 2, 4, 187, {"op": 1}, 1, 1)
    (site,) = select_sites(root, [span]).sites
    assert len(site.text) == 120
    assert site.text.startswith("f(a, b, b,")
    assert site.text.endswith("…")


def test_symbolic_link_to_the_checkout_is_followed(checkout: Checkout, tmp_path: Path) -> None:
    root = checkout("a", {"m.py": "f(1)\n"})
    link = tmp_path / "link"
    link.symlink_to(root)
    assert select_sites(link, [seen(link, "m.py", "f(1)")]).files[0].path == "m.py"
