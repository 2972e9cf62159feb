"""What the documentation must say plainly, and where."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from opguard_e2e import REPOSITORY

NO_VERDICT = "not a numerical-equivalence result and not a root-cause finding"
WATCHED = """
import sys
sockets = []
sys.addaudithook(lambda event, _: sockets.append(event) if event.startswith("socket.") else None)
from opguard.tools.cli import main
status = main(sys.argv[1:])
assert sockets == [], sockets
sys.exit(status)
"""


def text_of(page: str) -> str:
    """A page on one line, without the marks of emphasis."""
    return re.sub(r"[*`]", "", " ".join((REPOSITORY / page).read_text().split()))


@pytest.mark.requirement("E3")
@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/guides/first-diff.md",
        "docs/guides/agents-protocol.md",
        "docs/concepts/pairing-and-origins.md",
    ],
)
def test_page_says_what_a_report_is_not(page: str) -> None:
    assert NO_VERDICT in text_of(page)


@pytest.mark.requirement("D9")
@pytest.mark.parametrize("page", ["README.md", "docs/guides/first-diff.md"])
def test_page_asks_for_a_dedicated_checkout(page: str) -> None:
    assert re.search("a checkout of its own for each workload", text_of(page))


@pytest.mark.requirement("F11")
def test_fingerprints_page_says_what_values_do_not_prove() -> None:
    text = text_of("docs/concepts/fingerprints.md")
    for statement in (
        "not a count of elements, not a size of an error",
        "not a proof that only padding differs",
        "Equal regions can collide",
        "cannot be turned into regional evidence afterwards",
        "compared only where scheme, R and size agree",
    ):
        assert statement in text


@pytest.mark.requirement("A8")
def test_protocol_guide_says_whom_it_is_for() -> None:
    text = text_of("docs/guides/agents-protocol.md")
    assert "trusted local callers" in text
    assert "not a sandbox, and nothing listens on a socket" in text


@pytest.mark.requirement("A8")
@pytest.mark.parametrize("arguments", [("capabilities",), ("schema",)])
def test_command_opens_no_socket(arguments: tuple[str, ...]) -> None:
    completed = subprocess.run(
        [sys.executable, "-c", WATCHED, *arguments], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
