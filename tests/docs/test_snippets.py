"""Every `sh` and `python` block of the documentation runs, page by page, in order.

A page's blocks run in one scratch folder with the example's checkouts as `baseline` and
`candidate`. An HTML comment `<!-- exit status: N -->` before a block says how it ends otherwise
than with 0.
Blocks of another kind (text, json, console) are illustrations.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from environments import prepare_upgrade

from opguard_e2e import COMMAND_TIMEOUT_SECONDS, EXAMPLE, REPOSITORY, workload_environment

PAGES = (
    "docs/guides/first-diff.md",
    "docs/guides/embedding.md",
    "docs/guides/agents-protocol.md",
    "docs/guides/upgraded-library.md",
    "packages/opguard-core/README.md",
)
BLOCK = re.compile(
    r"(?:<!-- exit status: (?P<status>\d+) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    flags=re.MULTILINE | re.DOTALL,
)
RUN = {"sh": ["bash", "-eu", "-c"], "python": [sys.executable, "-c"]}
ILLUSTRATIONS = {"text", "json", "console"}


class Snippet(NamedTuple):
    """One block of a page."""

    language: str
    text: str
    status: int


def snippets_of(page: str) -> list[Snippet]:
    """The blocks of a page that are run."""
    text = (REPOSITORY / page).read_text()
    return [
        Snippet(match["language"], match["text"], int(match["status"] or 0))
        for match in BLOCK.finditer(text)
        if match["language"] not in ILLUSTRATIONS
    ]


@pytest.mark.parametrize("page", PAGES)
def test_snippets_of_page_run(page: str, tmp_path: Path) -> None:
    for side in ("baseline", "candidate"):
        shutil.copytree(EXAMPLE / side, tmp_path / side)
    if page == "docs/guides/upgraded-library.md":
        prepare_upgrade(tmp_path)
    scripts = Path(sys.executable).parent
    environment = workload_environment(PATH=f"{scripts}{os.pathsep}{os.environ['PATH']}")
    snippets = snippets_of(page)
    assert snippets
    for snippet in snippets:
        completed = subprocess.run(
            [*RUN[snippet.language], snippet.text],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_SECONDS,
            check=False,
        )
        assert completed.returncode == snippet.status, (snippet.text, completed.stderr)


def test_every_page_with_blocks_to_run_is_listed() -> None:
    pages = [*REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("packages/*/README.md")]
    runnable = {str(path.relative_to(REPOSITORY)) for path in pages if snippets_of(str(path))}
    assert runnable == set(PAGES)


def test_ci_runs_the_test_command_of_the_readme() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    commands = re.findall(r"^ {4}(python3 -m venv .*/nox -s (?:demo|tests))$", readme, re.MULTILINE)
    assert [command.rpartition(" ")[2] for command in commands] == ["demo", "tests"]
    assert commands[1] in (REPOSITORY / ".ci" / "run").read_text()
