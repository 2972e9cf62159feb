"""Links and file names in the documentation lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opguard_e2e import REPOSITORY

PATTERNS = (
    "*.md",
    "docs/**/*.md",
    "packages/*/*.md",
    "crates/*/*.md",
    "cuda/*.md",
    "examples/**/*.md",
)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
PAGES = sorted({path for pattern in PATTERNS for path in REPOSITORY.glob(pattern)})


def anchors_of(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    broken = []
    for target in LINK.findall(page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and anchor not in anchors_of(path)):
            broken.append(target)
    assert broken == []


def test_every_page_below_docs_is_linked_from_the_index() -> None:
    docs = REPOSITORY / "docs"
    index = docs / "index.md"
    linked = {
        (docs / target.partition("#")[0]).resolve() for target in LINK.findall(index.read_text())
    }
    assert sorted(set(docs.rglob("*.md")) - linked - {index}) == []
