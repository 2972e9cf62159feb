"""SIGKILL at every step of a transaction and of its recovery, with and without a user's edit."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from opguard.tools.transaction import recover

# How a file system may answer to an exchange: can do, cannot, or not from the first staging place.
FILE_SYSTEMS = {
    "exchange": {},
    "no-exchange": {"exchange": errno.EINVAL},
    "other-mount": {"exdev": True},
}


@pytest.fixture(autouse=True)
def _no_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process leaves its writes to the kernel; only a power cut needs the flushes."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(params=FILE_SYSTEMS, name="file_system")
def _file_system(request: pytest.FixtureRequest) -> dict[str, Any]:
    return FILE_SYSTEMS[request.param]


def run_whole(project: Any, files: dict[str, bytes] | None = None) -> Any:
    """One operation: instrument, do nothing, restore."""
    changes = {} if files is None else {"files": files}
    transaction = project.transaction(**changes)

    def operation() -> None:
        with transaction:
            pass

    return operation


@pytest.mark.requirement("D3")
@pytest.mark.requirement("D7")
def test_kill_at_every_step_leaves_a_checkout_that_recover_makes_identical(
    project: Any, harness: Any, file_system: dict[str, Any]
) -> None:
    def check(number: int, ending: Any) -> None:
        assert ending.signal == 9, ending
        contents = {
            path: content
            for path, content in project.contents().items()
            if not Path(path).name.startswith(".opguard-")
        }
        assert contents.keys() == harness.originals.keys(), number
        for path, content in contents.items():
            assert content in (harness.originals[path], harness.instrumented[path]), number
        if not project.marker.exists():
            assert project.snapshot() == project.original, number
        report = recover(project.checkout)
        assert report.complete, number
        project.assert_pristine(number)

    points = harness.sweep(
        lambda: run_whole(project), harness.kill, check, after=False, **file_system
    )

    assert points > 80


@pytest.mark.requirement("D7")
def test_recover_killed_at_every_step_is_completed_by_another_recover(
    project: Any, harness: Any, file_system: dict[str, Any]
) -> None:
    def leave_instrumented() -> Any:
        def crash() -> None:
            harness.Faults(lambda number, name: None, **file_system)
            with project.transaction():
                harness.kill("")

        project.outputs += 1
        assert harness.in_child(crash).signal == 9
        assert project.contents() != harness.originals
        return lambda: recover(project.checkout)

    def check(number: int, ending: Any) -> None:
        assert ending.signal == 9, ending
        if not project.marker.exists():
            assert project.snapshot() == project.original, number
        assert recover(project.checkout).complete
        project.assert_pristine(number)

    points = harness.sweep(leave_instrumented, harness.kill, check, after=False, **file_system)

    assert points > 15


def two_files(harness: Any) -> dict[str, bytes]:
    """The file that is edited and one more: what is done to a third is the same again."""
    return {path: harness.instrumented[path] for path in ("model.py", "pkg/data.py")}


def save_in_place(target: Path) -> bytes | None:
    target.chmod(0o644)
    target.write_bytes(b"edit = 'in place'\n")
    return target.read_bytes()


def save_by_rename(target: Path) -> bytes | None:
    draft = target.with_name("draft~")
    draft.write_bytes(b"edit = 'by rename'\n")
    draft.replace(target)
    return target.read_bytes()


def delete(target: Path) -> bytes | None:
    target.unlink()
    return None


def make_directory(target: Path) -> bytes | None:
    target.unlink()
    target.mkdir()
    (target / "moved.py").write_bytes(b"edit\n")
    return None


EDITS = (save_in_place, save_by_rename, delete, make_directory)


def assert_edit_is_there(project: Any, target: Path, edit: Any) -> None:
    if edit is delete:
        assert not os.path.lexists(target)
    elif edit is make_directory:
        assert (target / "moved.py").read_bytes() == b"edit\n"
    else:
        assert target.read_bytes().startswith(b"edit = ")


@pytest.mark.requirement("D6")
@pytest.mark.parametrize("edit", EDITS)
def test_edit_at_every_step_survives_and_the_other_files_are_restored(
    project: Any, harness: Any, edit: Any
) -> None:
    target = project.checkout / "model.py"
    seen: set[str | None] = set()

    def check(number: int, ending: Any) -> None:
        seen.add(ending.error_type)
        assert_edit_is_there(project, target, edit)
        for path, found in project.original.items():
            if path != "model.py":
                assert project.snapshot()[path] == found, number
        if ending.error_type == "source_changed":
            assert ending.details["edited"] == ["model.py"]
            assert project.marker.exists()
            report = recover(project.checkout)
            assert list(report.edited) == ["model.py"]
            assert not report.marker_removed
            assert_edit_is_there(project, target, edit)
        else:
            assert ending.error_type in ("source_mismatch", "unsafe_source", None), ending
            assert not project.marker.exists(), (number, ending)
        project.reset()

    harness.sweep(lambda: run_whole(project, two_files(harness)), lambda _: edit(target), check)

    assert {"source_changed", "source_mismatch", None} <= seen


def test_without_exchange_only_an_edit_between_check_and_rename_is_lost(
    project: Any, harness: Any
) -> None:
    """Pins the documented window of file systems that cannot exchange."""
    target = project.checkout / "model.py"

    def act(name: str) -> None:
        save_in_place(target)
        (project.root / "point").write_text(name)

    def check(number: int, ending: Any) -> None:
        if not target.read_bytes().startswith(b"edit = "):
            lost.append((project.root / "point").read_text())
        project.reset()

    lost: list[str] = []
    harness.sweep(lambda: run_whole(project, two_files(harness)), act, check, exchange=errno.EINVAL)

    assert lost == ["before replace", "before replace"]


@pytest.mark.requirement("D6")
@pytest.mark.requirement("D7")
@pytest.mark.parametrize("edit", EDITS)
def test_edit_in_the_instant_of_an_exchange_survives_a_kill_at_every_later_step(
    project: Any, harness: Any, edit: Any
) -> None:
    """The displaced edit may lie in the staging place when the process dies; recover returns it."""
    target = project.checkout / "model.py"
    for exchange in range(2):  # of the entry, of the exit
        later = 0
        while True:
            project.outputs += 1

            def child(exchange: int = exchange, later: int = later) -> bool:
                exchanges = 0
                countdown: int | None = None

                def hook(_: int, name: str) -> None:
                    nonlocal exchanges, countdown
                    if countdown is not None:
                        if countdown == 0:
                            harness.kill("")
                        countdown -= 1
                    if name == "before exchange":
                        if exchanges == exchange * 3:  # three files are exchanged on the way in
                            edit(target)
                            countdown = later
                        exchanges += 1

                harness.Faults(hook)
                with project.transaction():
                    pass
                return True

            ending = harness.in_child(child)
            assert ending.error_type in (None, "source_changed", "source_mismatch"), ending
            recover(project.checkout)
            assert_edit_is_there(project, target, edit)
            for path, found in project.original.items():
                if path != "model.py":
                    assert project.snapshot()[path] == found
            project.reset()
            if ending.signal is None:
                break
            later += 1
        assert later > 5


def test_write_into_the_displaced_original_is_kept_as_an_edit(project: Any, harness: Any) -> None:
    """A program that opened the source before the operation may save through that descriptor."""
    target = project.checkout / "model.py"

    def child() -> None:
        with target.open("r+b", buffering=0) as opened, project.transaction():
            opened.write(b"IMPORT")

    ending = harness.in_child(child)

    assert ending.error_type == "source_changed"
    assert target.read_bytes() == b"IMPORT" + harness.originals["model.py"][6:]


@pytest.mark.requirement("D3")
def test_everything_is_flushed_before_what_relies_on_it(project: Any, harness: Any) -> None:
    """Order of names and flushes, as a power cut would find them."""
    project.outputs += 1

    def child() -> list[tuple[str, str]]:
        paths: dict[int, str] = {}
        real_open = os.open

        def remember(path: Any, *arguments: Any, **keywords: Any) -> int:
            descriptor = real_open(path, *arguments, **keywords)
            paths[descriptor] = os.fspath(path)
            return descriptor

        os.open = remember
        faults = harness.Faults(lambda number, name: None)
        events: list[tuple[str, str]] = []
        real_append = faults.log.append

        class Log(list[Any]):
            def append(self, item: Any) -> None:
                name, arguments = item
                if name in ("fsync", "fchmod"):
                    events.append((name, paths[arguments[0]]))
                elif name in ("link", "rename", "exchange", "unlink", "mkdir"):
                    events.append((name, os.fspath(arguments[-1])))
                real_append(item)

        faults.log = Log()
        with project.transaction():
            events.append(("body", ""))
        return events

    events = harness.in_child(child).value
    marker = events.index(("link", str(project.marker)))
    output = project.root / "out-2-instrument"
    copies = [output / "originals" / path for path in harness.originals]
    for path in [*copies, output / "originals.json", *{copy.parent for copy in copies}, output]:
        assert ("fsync", str(path)) in events[:marker], path
    for event in (("mkdir", str(output)), ("mkdir", str(output / "originals"))):
        parent = os.path.dirname(event[1])
        assert ("fsync", parent) in events[events.index(event) : marker], event
    first_exchange = next(i for i, event in enumerate(events) if event[0] == "exchange")
    assert ("fsync", str(project.marker.parent)) in events[marker:first_exchange]
    for position, (name, path) in enumerate(events):
        if name == "rename":
            assert ("fsync", path.replace(".swap", ".new")) in events[:position], path
    end = events.index(("unlink", str(project.marker)))
    last_exchange = max(i for i, event in enumerate(events) if event[0] == "exchange")
    for folder in (project.checkout, project.checkout / "pkg"):
        assert ("fsync", str(folder)) in events[events.index(("body", "")) : end]
    assert ("fsync", str(project.checkout / "pkg")) in events[last_exchange:end]
    assert ("fsync", str(project.marker.parent)) in events[end:]


def test_torn_marker_of_a_killed_operation_is_tidied_by_the_next(
    project: Any, harness: Any
) -> None:
    state = project.checkout / ".opguard"
    state.mkdir()
    (state / "harness-active.json.0badf00d.tmp").write_bytes(b'{"marker_ver')

    with project.transaction():
        assert project.contents() == harness.instrumented

    project.assert_pristine()
    assert {path.name for path in state.iterdir()} == {".gitignore", "lock"}
