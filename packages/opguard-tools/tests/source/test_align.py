"""Tests of the alignment of two versions."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import pytest

from opguard.tools.source import Alignment, align_sources

MODULE = "m.py"


def program(text: str) -> bytes:
    return textwrap.dedent(text).lstrip("\n").encode()


def lines(sources: Mapping[str, bytes], place: tuple[str, int, int]) -> str:
    return sources[place[0]].decode().splitlines()[place[1] - 1][place[2] :]


def pairs(baseline: Mapping[str, bytes], candidate: Mapping[str, bytes]) -> dict[str, str]:
    """Text of shared statements: the baseline's with the candidate's."""
    alignment = align_sources(baseline, candidate)
    places = {k.number: p for p, k in alignment.candidate.items() if k.kind == "shared"}
    return {
        lines(baseline, place): lines(candidate, places[key.number])
        for place, key in alignment.baseline.items()
        if key.kind == "shared"
    }


def blocks(
    baseline: Mapping[str, bytes], candidate: Mapping[str, bytes]
) -> set[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Changed blocks: texts of the baseline's statements and of the candidate's."""
    alignment = align_sources(baseline, candidate)
    found: dict[int, tuple[list[str], list[str]]] = {}
    for side, (sources, keys) in enumerate(
        ((baseline, alignment.baseline), (candidate, alignment.candidate))
    ):
        for place, key in sorted(keys.items()):
            if key.kind == "changed":
                found.setdefault(key.number, ([], []))[side].append(lines(sources, place))
    return {(tuple(left), tuple(right)) for left, right in found.values()}


def one(baseline: str, candidate: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
    return {MODULE: program(baseline)}, {MODULE: program(candidate)}


def test_equal_sources_share_every_statement() -> None:
    source = (
        "import a\ndef f(x):\n  if x: return 1\n  else:\n    y = 2\n  return y\nz = f(1); f(z)\n"
    )
    sides = one(source, source)
    assert blocks(*sides) == set()
    assert set(pairs(*sides)) == {
        "import a",
        "def f(x):",
        "if x: return 1",
        "return 1",
        "y = 2",
        "return y",
        "z = f(1); f(z)",
        "f(z)",
    }


def test_comments_formatting_docstrings_and_annotations_make_no_difference() -> None:
    sides = one(
        '''
        def f(x, y=1):
            """Old."""
            z = g(x, "a")  # comment
            return (z)
        ''',
        """
        "module"
        def f(x: int, y: "int" = (1)) -> None:
            z: Tensor = g(
                x,
                'a',
            )

            return z
        """,
    )
    assert blocks(*sides) == set()
    assert pairs(*sides)['z = g(x, "a")  # comment'] == "z: Tensor = g("


def test_changed_statements_at_the_same_place_share_a_block() -> None:
    sides = one(
        """
        def f(x):
            a = g(x)
            b = a * 2
            c = a * 3
            return b + c
        """,
        """
        def f(x):
            a = g(x)
            b = a * 4
            return b + c
            d = 1
        """,
    )
    assert blocks(*sides) == {(("b = a * 2", "c = a * 3"), ("b = a * 4",)), ((), ("d = 1",))}


def test_repeated_statements_keep_to_their_neighbours() -> None:
    sides = one(
        "x = f(x)\na = 1\nx = f(x)\nb = 2\nx = f(x)\nc = 3\n",
        "b = 2\nx = f(x)\nc = 3\n",
    )
    alignment = align_sources(*sides)
    places = {key.number: line for (_, line, _), key in alignment.candidate.items()}
    assert {
        line: places[key.number]
        for (_, line, _), key in alignment.baseline.items()
        if key.kind == "shared"
    } == {4: 1, 5: 2, 6: 3}


def test_consistently_renamed_variables_are_shared() -> None:
    sides = one(
        """
        def f(x, key=None):
            h = norm(x)
            for i, t in enumerate(h):
                h = h + t[i]
            with ctx() as c:
                total = sum(v for v in c)
            return h * total
        """,
        """
        def f(inputs, *, key=None):
            hidden = norm(inputs)
            for index, token in enumerate(hidden):
                hidden = hidden + token[index]
            with ctx() as context:
                amount = sum(value for value in context)
            return hidden * amount
        """,
    )
    assert blocks(*sides) == {(("def f(x, key=None):",), ("def f(inputs, *, key=None):",))}


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        ("y = g(x); z = h(x)\n", "y = g(x); z = h(y)\n"),
        ("y = g(x, w)\n", "y = g(w, x)\n"),
        ("y = g(x); y2 = y; z = h(y)\n", "y = g(x); y2 = y; z = h(y2)\n"),
        ("y = g(x)\n", "y = g2(x)\n"),
        ("y = g(x, k=1)\n", "y = g(x, j=1)\n"),
        ("y = x.a\n", "y = x.b\n"),
        ("y = 1\n", "y = 1.0\n"),
        ("y = 0.0\n", "y = -0.0\n"),
        ("y = 1\n", "y = True\n"),
        ("y = x and w\n", "y = x or w\n"),
        ("if x: pass\n", "while x: pass\n"),
        ("def g(a, b=1): pass\n", "def g(a, b=2): pass\n"),
        ("y = lambda a, b: a\n", "y = lambda a, b: b\n"),
        ("import a as y\n", "import b as y\n"),
        ("try: pass\nexcept A: pass\n", "try: pass\nexcept B: pass\n"),
        ("match x:\n  case 1: pass\n", "match x:\n  case 2: pass\n"),
        ("y = p if x else q\n", "y = q if x else p\n"),
        ("y += x\n", "y -= x\n"),
    ],
)
def test_real_change_is_never_shared(baseline: str, candidate: str) -> None:
    def inside(text: str) -> bytes:
        body = textwrap.indent(text, "  ")
        return f"def f(x, w, p, q):\n{body}  return y\n".encode()

    assert blocks({MODULE: inside(baseline)}, {MODULE: inside(candidate)}) != set()


def test_name_that_became_local_or_global_is_the_same_in_other_statements() -> None:
    sides = one(
        "import torch\ndef f(x):\n  return torch.relu(x)\n",
        "import torch\ndef f(x):\n  import torch\n  return torch.relu(x)\n",
    )
    assert blocks(*sides) == {((), ("import torch",))}


def test_renamed_global_is_followed_into_functions() -> None:
    sides = one(
        "SCALE = 3\ndef f(x):\n  global SCALE\n  SCALE = x\n  return x * SCALE\n",
        "FACTOR = 3\ndef f(x):\n  global FACTOR\n  FACTOR = x\n  return x * FACTOR\n",
    )
    assert blocks(*sides) == set()


def test_method_moved_and_renamed_is_matched_by_its_body() -> None:
    sides = one(
        """
        class Model(Base):
            def forward(self, x):
                return self.mix(x, 2)
            def mix(self, x, n):
                y = x * n
                return y.sum()
        """,
        """
        class Mixer:
            def blend(self, t, count):
                out = t * count
                return out.sum()
        class Model(Mixer, Base):
            def forward(self, x):
                return self.blend(x, 2)
        """,
    )
    alignment = align_sources(*sides)
    assert alignment.functions[MODULE, "Model.mix"] == (MODULE, "Mixer.blend")
    shared = pairs(*sides)
    assert shared["y = x * n"] == "out = t * count"
    assert shared["return self.mix(x, 2)"] == "return self.blend(x, 2)"


def test_function_moved_to_another_file_with_a_small_change_is_matched_by_its_name() -> None:
    body = "def step(x):\n  a = f(x)\n  b = g(a)\n  c = h(b)\n  return c\n"
    baseline = {"train.py": body.encode() + b"step(1)\n", "util.py": b"U = 1\n"}
    candidate = {
        "train.py": b"from util import step\nstep(1)\n",
        "util.py": b"U = 1\n" + body.replace("h(b)", "h(b, 1)").encode(),
    }
    alignment = align_sources(baseline, candidate)
    assert alignment.functions["train.py", "step"] == ("util.py", "step")
    assert (("c = h(b)",), ("c = h(b, 1)",)) in blocks(baseline, candidate)


def test_two_functions_with_one_body_are_not_guessed() -> None:
    body = "(x):\n  a = f(x)\n  return g(a)\n"
    baseline = {MODULE: f"def one{body}".encode()}
    candidate = {MODULE: f"def two{body}def three{body}".encode()}
    assert align_sources(baseline, candidate).functions == {
        (MODULE, "<module>"): (MODULE, "<module>")
    }


def test_property_getter_and_setter_of_one_name_are_matched_in_order() -> None:
    source = """
    class A:
        @property
        def x(self):
            return f(self)
        @x.setter
        def x(self, value):
            g(self, value)
    """
    changed = source.replace("g(self, value)", "g(value)")
    assert blocks(*one(source, changed)) == {(("g(self, value)",), ("g(value)",))}


def test_file_renamed_without_rival_is_followed_and_so_are_its_imports() -> None:
    model = b"def make(n):\n  x = layer(n)\n  return x\n"
    baseline = {
        "model.py": model,
        "train.py": b"import model\nfrom model import make\nmodel.make(1)\n",
    }
    candidate = {"net.py": model, "train.py": b"import net\nfrom net import make\nnet.make(1)\n"}
    alignment = align_sources(baseline, candidate)
    assert alignment.files == {"model.py": "net.py", "train.py": "train.py"}
    assert blocks(baseline, candidate) == set()
    first = alignment.baseline["model.py", 2, 2]
    assert first == alignment.candidate["net.py", 2, 2]
    assert first.file_key == "model.py"


def test_file_with_two_likely_counterparts_is_not_followed() -> None:
    model = b"def make(n):\n  x = layer(n)\n  return x\n"
    alignment = align_sources({"a.py": model}, {"b.py": model, "c.py": model})
    assert alignment.files == {}
    assert {key.kind for key in alignment.baseline.values()} == {"changed"}


def test_file_on_one_side_only_is_a_block_of_its_own() -> None:
    alignment = align_sources({"a.py": b"x = 1\n"}, {"a.py": b"x = 1\n", "b.py": b"y = f(2)\n"})
    assert alignment.candidate["b.py", 1, 0].kind == "changed"
    assert alignment.candidate["b.py", 1, 0] not in alignment.baseline.values()


def test_file_that_does_not_parse_takes_no_part_and_is_named() -> None:
    alignment = align_sources({"a.py": b"x = (\n", "b.py": b"\xff"}, {"a.py": b"x = 1\n"})
    assert set(alignment.unusable) == {("baseline", "a.py"), ("baseline", "b.py")}
    assert alignment.baseline == {}


def test_numbers_are_used_once_and_results_repeat() -> None:
    sides = one("a = 1\nb = 2\ndef f(): c = 3\n", "a = 1\nb = 4\ndef g(): d = 3\n")
    first, second = align_sources(*sides), align_sources(*sides)
    assert first == second
    assert isinstance(first, Alignment)
    shared = [key.number for key in first.baseline.values() if key.kind == "shared"]
    assert len(shared) == len(set(shared))


def test_long_unrelated_functions_are_aligned_in_bounded_time() -> None:
    # 400 statements without any unique one: the exact table would have 160,000 cells.
    left = "def f(x):\n" + "  x = x + 1\n  x = x * 2\n" * 200
    right = "def f(x):\n" + "  x = x * 2\n  x = x - 1\n" * 200
    alignment = align_sources({MODULE: left.encode()}, {MODULE: right.encode()})
    shared = [key for key in alignment.baseline.values() if key.kind == "shared"]
    assert len(shared) > 200
