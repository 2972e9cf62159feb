"""Tests of where the wrappers' names come from."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import pytest

from opguard.tools.source import Site, instrument
from opguard.tools.source.spelling import import_place
from opguard.tools.source.text import SourceText, parse

AllSites = Callable[..., list[Site]]

BOTH = "from opguard.core._site import site as __opguard_site__, operator as __opguard_operator__"
SITE = "from opguard.core._site import site as __opguard_site__"


def instrumented(source: str, all_sites: AllSites, *kinds: str) -> str:
    content = source.encode()
    chosen = kinds or ("call",)
    return instrument(content, all_sites(content, only=lambda e: e.kind in chosen)).decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "'doc'\nfrom __future__ import annotations\n"
            "from __future__ import (\n division, )  # c\n",
            "'doc'\nfrom __future__ import annotations\n"
            f"from __future__ import (\n division, ); {SITE}  # c\n",
        ),
        (
            "from __future__ import annotations; import os;\n",
            f"from __future__ import annotations; {SITE}; import os;\n",
        ),
        ('"""doc\nmore"""  # c\n', f'"""doc\nmore"""; {SITE}  # c\n'),
        ("('doc'\n 'more');\n", f"('doc'\n 'more'); {SITE};\n"),
        ("'doc'; import os\n", f"'doc'; {SITE}; import os\n"),
        ("# c\n\nimport os; import sys\n", f"# c\n\n{SITE}; import os; import sys\n"),
        ("b'bytes'\n", f"{SITE}; b'bytes'\n"),
        ("f'{1}'\n", f"{SITE}; f'{{1}}'\n"),
        ("# c\n\t\nif 1: pass\n", f"# c\n{SITE}\t\nif 1: pass\n"),
        ("  # c\n@f\ndef g(): pass\n", f"{SITE}    # c\n@f\ndef g(): pass\n"),
        ("#!/bin/x\n# c\nclass A: pass\n", f"#!/bin/x\n{SITE}  # c\nclass A: pass\n"),
        (
            "# c\n# coding: utf-8\n# d\nclass A: pass\n",
            f"# c\n# coding: utf-8\n{SITE}  # d\nclass A: pass\n",
        ),
    ],
)
def test_import_goes_to_the_first_place_that_fits(
    before: str, after: str, all_sites: AllSites
) -> None:
    assert instrumented(before + "x = f(1)\n", all_sites) == (
        after + "x = __opguard_site__(1, f)(1)\n"
    )


@pytest.mark.parametrize(
    "head", ["", "#!/bin/x\n", "# -*- coding: utf-8 -*-\n", "# c\n# coding: utf-8\n", "\\\n\n"]
)
def test_file_without_a_place_imports_where_it_uses(
    head: str, all_sites: AllSites, recorder: Any
) -> None:
    source = (
        f"{head}if True:\n    x = f(1) + f(2)\n    y = [1]\n    y[0] = y[0] * 2\n    y[0] += 1\n"
        "    for z in y: z += 1\n"
    )
    changed = instrumented(
        source, all_sites, "call", "binary", "store", "subscript", "iterate", "augmented"
    )
    assert "import site" not in changed
    values: dict[str, Any] = {"f": lambda x: x}
    exec(compile(changed, "m.py", "exec"), values)
    assert (values["x"], values["y"], values["z"]) == (3, [3], 4)
    assert len(set(recorder.seen)) == len(re.findall(r"\)\.(?!operator)\w+\(\d+, ", changed))


def test_only_used_names_are_imported(all_sites: AllSites) -> None:
    assert instrumented("x = a + f(1)\n", all_sites, "call", "binary").startswith(BOTH + "; x =")
    assert instrumented("x = a[0]\n", all_sites, "subscript").startswith(
        "from opguard.core._site import subscript as __opguard_sub__; x ="
    )
    assert "__opguard_operator__" not in instrumented("x = a + f(1)\n", all_sites)


def test_module_docstring_and_future_features_stay(all_sites: AllSites, recorder: Any) -> None:
    source = '"""doc"""\n\nfrom __future__ import annotations\nx: undefined = f(1)\n'
    values: dict[str, Any] = {"f": lambda x: x}
    exec(compile(instrumented(source, all_sites), "m.py", "exec"), values)
    assert values["__doc__"] == "doc"
    assert values["__annotations__"] == {"x": "undefined"}


def test_module_without_statements_has_no_place() -> None:
    source = SourceText.decode(b"# nothing\n")
    assert import_place(source, parse(source.text)) is None


def test_inserted_names_are_not_mangled_in_classes(all_sites: AllSites, recorder: Any) -> None:
    source = "\nclass A:\n    x = f(1)\n    def g(self):\n        return f(2)\ny = A().g()\n"
    changed = instrumented(source, all_sites)
    values: dict[str, Any] = {"f": lambda x: x}
    exec(compile(changed, "m.py", "exec"), values)
    assert (values["A"].x, values["y"]) == (1, 2)
    assert ast.get_docstring(ast.parse(changed)) is None
