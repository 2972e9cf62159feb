"""The page of environment variables names those that the code reads, and no others."""

from __future__ import annotations

import re

from opguard_e2e import REPOSITORY

SOURCES = ("packages/*/src/**/*.py", "crates/*/src/**/*.rs")
VARIABLE = re.compile(r"\b(?:OPGUARD|XORSIG)_[A-Z]+(?:_[A-Z]+)*\b")


def test_page_names_every_variable_that_the_code_reads_and_no_other() -> None:
    read = {
        name
        for pattern in SOURCES
        for path in REPOSITORY.glob(pattern)
        for name in VARIABLE.findall(path.read_text())
    }
    page = (REPOSITORY / "docs" / "reference" / "environment.md").read_text()
    assert sorted(set(VARIABLE.findall(page))) == sorted(read)
