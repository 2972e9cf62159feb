from __future__ import annotations

from pathlib import Path

import pytest

from opguard.tools.launch.paths import OperationPaths, check_paths, make_directories
from opguard.tools.protocol.errors import (
    OutputExistsError,
    PathConflictError,
    WorkloadNotFoundError,
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    return folder


def test_paths_are_resolved_and_nothing_is_made(tmp_path: Path, checkout: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)

    paths = check_paths(
        str(link / "out"), checkout=str(link / "checkout"), local_root=str(link / "local")
    )

    assert paths == OperationPaths(tmp_path / "out", checkout, tmp_path / "local")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkout", "link"]


@pytest.mark.requirement("B1")
@pytest.mark.requirement("B7")
@pytest.mark.parametrize("name", ["out", "out-instrument"])
def test_existing_output_or_instrument_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()

    with pytest.raises(OutputExistsError) as caught:
        check_paths(str(tmp_path / "out"))

    assert caught.value.details["path"] == tmp_path / name


def test_output_that_is_a_dangling_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")

    with pytest.raises(OutputExistsError):
        check_paths(str(tmp_path / "out"))


def test_missing_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadNotFoundError) as caught:
        check_paths(str(tmp_path / "out"), checkout=str(tmp_path / "missing"))

    assert caught.value.details["path"] == tmp_path / "missing"


@pytest.mark.requirement("B12")
@pytest.mark.parametrize(
    ("output", "local_root", "field"),
    [
        ("checkout/out", "local", "output"),
        ("out", "checkout/local", "local_root"),
        ("out", "checkout", "local_root"),
        ("out", "out", "local_root"),
        ("out", "out/local", "local_root"),
        ("out", "out-instrument/local", "local_root"),
        ("local/out", "local", "output"),
        ("link/out", "local", "output"),
        ("out", "link/local", "local_root"),
    ],
)
def test_overlapping_directories_are_refused(
    tmp_path: Path, checkout: Path, output: str, local_root: str, field: str
) -> None:
    (tmp_path / "link").symlink_to(checkout)

    with pytest.raises(PathConflictError) as caught:
        check_paths(
            str(tmp_path / output),
            checkout=str(checkout),
            local_root=str(tmp_path / local_root),
        )

    assert caught.value.details == {"field": field}


def test_sibling_whose_name_begins_alike_is_not_an_overlap(tmp_path: Path, checkout: Path) -> None:
    paths = check_paths(
        str(tmp_path / "checkout-out"),
        checkout=str(checkout),
        local_root=str(tmp_path / "checkout-out2"),
    )

    assert paths.output == tmp_path / "checkout-out"


def test_output_and_local_root_are_made_with_their_parents(tmp_path: Path) -> None:
    paths = OperationPaths(tmp_path / "a" / "out", None, tmp_path / "b" / "local")

    make_directories(paths)

    assert (tmp_path / "a" / "out").is_dir()
    assert (tmp_path / "b" / "local").is_dir()


def test_output_that_appeared_since_the_check_is_refused(tmp_path: Path) -> None:
    paths = check_paths(str(tmp_path / "out"))
    (tmp_path / "out").mkdir()

    with pytest.raises(OutputExistsError):
        make_directories(paths)


@pytest.mark.parametrize("field", ["output", "local_root"])
def test_directory_below_a_file_is_refused_with_its_field(tmp_path: Path, field: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    blocked, free = tmp_path / "file" / "sub", tmp_path / "free"
    paths = (
        OperationPaths(blocked, None, free)
        if field == "output"
        else OperationPaths(free, None, blocked)
    )

    with pytest.raises(PathConflictError) as caught:
        make_directories(paths)

    assert caught.value.details == {"field": field}
