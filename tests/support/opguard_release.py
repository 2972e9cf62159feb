"""Whether a distribution can be released from this checkout: run by `nox -s release`.

Looks only; makes no tag, and publishes nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

BRANCH = "main"


def release_tag(folder: Path) -> str:
    """Tag of the version that a distribution's folder holds, as ``xorsig-v0.1.0``."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    return f"{project['project']['name']}-v{_version(folder, project)}"


def objections(folder: Path) -> Iterator[str]:
    """Why the distribution in a folder of a git repository cannot be released as it is."""
    if _git(folder, "status", "--porcelain"):
        yield "the working tree has changes: commit or remove them"
    branch = _git(folder, "branch", "--show-current")
    if branch != BRANCH:
        yield f"releases are made from {BRANCH}, not from {branch or 'a detached commit'}"
    tag = release_tag(folder)
    if _git(folder, "tag", "--list", tag):
        yield f"the tag {tag} exists: raise the version"
    version = tag.rpartition("-v")[2]
    headings = re.findall(r"^## (.*)$", (folder / "CHANGELOG.md").read_text(), re.MULTILINE)
    if not headings or headings[0].split()[0] != version or "unreleased" in headings[0]:
        yield f"CHANGELOG.md has to begin with a section headed {version} and the date"


def _version(folder: Path, project: dict[str, dict[str, object]]) -> str:
    cargo = folder / "Cargo.toml"
    if cargo.exists():
        return str(tomllib.loads(cargo.read_text())["package"]["version"])
    hatch = project["tool"]["hatch"]
    path = folder / hatch["version"]["path"]  # type: ignore[index]
    (version,) = re.findall(r'^__version__ = "(.+)"$', path.read_text(), re.MULTILINE)
    return str(version)


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> int:
    """Print the tag of the release, or what stands against it and return 1."""
    folder = Path(sys.argv[1])
    found = list(objections(folder))
    for text in found:
        print(f"{folder.name}: {text}", file=sys.stderr)
    if not found:
        print(release_tag(folder))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
