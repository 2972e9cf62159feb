from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import opguard_release
import pytest

from opguard_e2e import REPOSITORY

FOLDERS = ("crates/xorsig", "packages/opguard-core", "packages/opguard-tools", "cuda")
IDENTITY = ("-c", "user.name=tester", "-c", "user.email=tester@example.org")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *IDENTITY, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A repository with one distribution that can be released."""
    folder = tmp_path / "packages" / "part"
    (folder / "src").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "part"\ndynamic = ["version"]\n'
        '[tool.hatch.version]\npath = "src/_version.py"\n'
    )
    (folder / "src" / "_version.py").write_text('__version__ = "1.2.0"\n')
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 (2030-01-31)\n\n- A part.\n")
    git(tmp_path, "init", "--initial-branch", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--message", "A part")
    return folder


def changed(folder: Path) -> None:
    (folder / "new.txt").write_text("")


def on_a_branch(folder: Path) -> None:
    git(folder, "switch", "--create", "topic")


def detached(folder: Path) -> None:
    git(folder, "switch", "--detach")


def tagged(folder: Path) -> None:
    git(folder, "tag", "part-v1.2.0")


def unreleased(folder: Path) -> None:
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 (unreleased)\n")
    git(folder, "commit", "--all", "--message", "Not yet")


def another_version(folder: Path) -> None:
    (folder / "src" / "_version.py").write_text('__version__ = "1.3.0"\n')
    git(folder, "commit", "--all", "--message", "Next")


def test_clean_distribution_on_the_main_branch_can_be_released(ready: Path) -> None:
    git(ready, "tag", "other-v1.2.0")

    assert (list(opguard_release.objections(ready)), opguard_release.release_tag(ready)) == (
        [], "part-v1.2.0",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "objection"),
    [
        (changed, "the working tree has changes: commit or remove them"),
        (on_a_branch, "releases are made from main, not from topic"),
        (detached, "releases are made from main, not from a detached commit"),
        (tagged, "the tag part-v1.2.0 exists: raise the version"),
        (unreleased, "CHANGELOG.md has to begin with a section headed 1.2.0 and the date"),
        (another_version, "CHANGELOG.md has to begin with a section headed 1.3.0 and the date"),
    ],
)
def test_release_is_refused(ready: Path, spoil: Callable[[Path], None], objection: str) -> None:
    spoil(ready)

    assert list(opguard_release.objections(ready)) == [objection]


def test_every_distribution_has_a_version_and_the_tag_that_is_documented() -> None:
    tags = {folder: opguard_release.release_tag(REPOSITORY / folder) for folder in FOLDERS}
    page = (REPOSITORY / "VERSIONING.md").read_text()
    documented = dict(re.findall(r"^\| `[\w-]+` \| `(.+?)` \| `(.+?)` \|$", page, re.MULTILINE))

    assert {
        folder: next(tag for path, tag in documented.items() if path.startswith(folder + "/"))
        for folder in FOLDERS
    } == tags


def test_changelog_of_every_distribution_names_its_tag_prefix() -> None:
    for folder in FOLDERS[1:]:
        prefix = opguard_release.release_tag(REPOSITORY / folder).rpartition("v")[0]
        assert f"Tag prefix: `{prefix}v`." in (REPOSITORY / folder / "CHANGELOG.md").read_text()
