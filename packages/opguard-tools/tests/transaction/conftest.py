"""A git checkout to instrument, and a harness that breaks an operation at every system call."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import pickle
import shutil
import signal
import stat
import subprocess
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from opguard.tools import durable
from opguard.tools.protocol.errors import OpGuardError
from opguard.tools.transaction import SourceTransaction

NOBODY = 65534
ORIGINALS = {
    "model.py": b"import torch\n\nloss = net(x)\n",
    "pkg/data.py": b"\xef\xbb\xbfrows = load(1)\r\nprint(rows)\r\n",
    "pkg/frozen.py": b"k = 1\rname = '\xc3\xa9'  # old line ends, no last one",
}
INSTRUMENTED = {
    path: content.replace(b"(", b"_site(7, ") + b"\n#i" for path, content in ORIGINALS.items()
}
EXPECTED = {path: hashlib.sha256(content).hexdigest() for path, content in ORIGINALS.items()}
FIRST_MTIME_NS = 1_600_000_000_123_456_789

_write = os.write  # ``Faults`` replaces it in children, whose report must get through

Snapshot = dict[str, tuple[bytes, int, int, int, int]]


@dataclass
class Project:
    """A checkout with three tracked sources, one of them read-only."""

    root: Path
    outputs: int = 0
    original: Snapshot = field(default_factory=dict)

    @property
    def checkout(self) -> Path:
        return self.root / "checkout"

    @property
    def marker(self) -> Path:
        return self.checkout / ".opguard" / "harness-active.json"

    @property
    def output(self) -> Path:
        return self.root / f"out-{self.outputs}-instrument"

    def transaction(self, **changes: Any) -> SourceTransaction:
        """A transaction over all sources with an output directory of its own."""
        self.outputs += 1
        files = changes.pop("files", INSTRUMENTED)
        expected = changes.pop("expected", None) or {path: EXPECTED[path] for path in files}
        return SourceTransaction(self.checkout, self.output, files, expected, **changes)

    def snapshot(self) -> Snapshot:
        """Content, ns time, mode, owner and group of every file outside .git and .opguard."""
        found: Snapshot = {}
        for path in sorted(self.checkout.rglob("*")):
            relative = path.relative_to(self.checkout)
            if relative.parts[0] in (".git", ".opguard") or path.is_dir():
                continue
            status = path.lstat()
            found[relative.as_posix()] = (
                path.read_bytes(),
                status.st_mtime_ns,
                stat.S_IMODE(status.st_mode),
                status.st_uid,
                status.st_gid,
            )
        return found

    def contents(self) -> dict[str, bytes]:
        return {path: found[0] for path, found in self.snapshot().items()}

    def git_status(self) -> str:
        return git(self.checkout, "status", "--porcelain")

    def assert_pristine(self, number: int = 0) -> None:
        """Byte- and time-identical, no marker, nothing that git shows, no staging left.

        In a sweep over points git, which takes longer than all the rest, is asked at every tenth.
        """
        assert self.snapshot() == self.original
        assert not self.marker.exists()
        assert number % 10 or self.git_status() == ""
        left = {path.name for path in (self.checkout / ".opguard").glob("*")}
        assert {name for name in left if not name.endswith(".tmp")} <= {".gitignore", "lock"}

    def reset(self) -> None:
        """Put the checkout back by force."""
        for path in self.snapshot().keys() - self.original.keys():
            (self.checkout / path).unlink()
        for path, (content, mtime_ns, mode, *_) in self.original.items():
            target = self.checkout / path
            if target.is_dir():
                shutil.rmtree(target)
            target.unlink(missing_ok=True)
            target.write_bytes(content)
            target.chmod(mode)
            os.utime(target, ns=(mtime_ns, mtime_ns))
        shutil.rmtree(self.checkout / ".opguard", ignore_errors=True)


def git(checkout: Path, *arguments: str) -> str:
    command = ["git", "-c", "core.autocrlf=false", "-c", "safe.directory=*", *arguments]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        command, cwd=checkout, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout


def make_project(root: Path) -> Project:
    project = Project(root)
    project.checkout.mkdir()
    for position, (path, content) in enumerate(ORIGINALS.items()):
        target = project.checkout / path
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(content)
        target.chmod((0o644, 0o755, 0o444)[position])
        mtime_ns = FIRST_MTIME_NS + position
        os.utime(target, ns=(mtime_ns, mtime_ns))
    git(project.checkout, "init", "-q")
    git(project.checkout, "add", "-A")
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    git(project.checkout, *identity, "commit", "-q", "-m", "start")
    project.original = project.snapshot()
    assert project.git_status() == ""
    return project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


@pytest.fixture
def open_root() -> Iterator[Path]:
    """A folder that another user may enter (pytest's own temporary folders are private)."""
    path = Path(tempfile.mkdtemp(prefix="opguard-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@dataclass(frozen=True)
class Ending:
    """How a forked child ended: killed by a signal, or with a value or an exception."""

    signal: int | None = None
    value: Any = None
    error: str | None = None
    error_type: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    trace: str = ""


def in_child(function: Callable[[], Any], *, as_nobody: bool = False) -> Ending:
    """Run ``function`` in a forked child, which never returns into the test."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns when a process with threads forks; these children only touch files.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.close(reader)
        with contextlib.suppress(BaseException):
            ending = _run_child(function, as_nobody)
            _write(writer, pickle.dumps(ending))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return Ending(signal=os.WTERMSIG(status))
    ending = pickle.loads(data)
    assert isinstance(ending, Ending)
    return ending


def _run_child(function: Callable[[], Any], as_nobody: bool) -> Ending:
    try:
        if as_nobody and os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return Ending(value=function())
    except OpGuardError as error:
        return Ending(
            error=type(error).__name__,
            error_type=error.error_type,
            details=error.details,
            trace=traceback.format_exc(),
        )
    except BaseException as error:
        return Ending(error=type(error).__name__, trace=traceback.format_exc())


_OS_CALLS = (
    *("open", "write", "pwrite", "ftruncate", "fsync", "fchmod", "fchown", "chmod", "utime"),
    *("rename", "replace", "link", "unlink", "mkdir", "rmdir"),
)
Hook = Callable[[int, str], None]


class Faults:
    """Calls a hook at every point of an operation: around each system call that changes a file.

    Used in a forked child only, since it replaces functions of ``os`` for good. Names of points are
    ``before NAME``, ``after NAME``, and ``torn write`` with half of the data written. Where nothing
    but reading happens between two calls, ``after`` the one is the state ``before`` the other, and
    ``after=False`` leaves it out. Real flushes are left out always: a killed process needs none,
    and the sweeps run many operations.
    """

    def __init__(
        self,
        hook: Hook,
        *,
        exchange: int | None = None,
        exdev: bool = False,
        after: bool = True,
    ) -> None:
        self.points = 0
        self._after = after
        self.log: list[tuple[str, tuple[Any, ...]]] = []
        self._hook = hook
        self._busy = False
        for name in _OS_CALLS:
            setattr(os, name, self._wrapped(name, getattr(os, name)))
        os.fsync = self._wrapped("fsync", lambda descriptor: None)  # type: ignore[assignment]
        fcntl.flock = self._wrapped("flock", fcntl.flock)  # type: ignore[assignment]
        real_exchange = durable.exchange

        def substitute(first: Path, second: Path) -> None:
            if exchange is not None:
                raise OSError(exchange, os.strerror(exchange), str(second))
            if exdev and first.parent.name == "staging":
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(second))
            real_exchange(first, second)

        durable.exchange = self._wrapped("exchange", substitute)

    def _point(self, name: str) -> None:
        number, self.points = self.points, self.points + 1
        self._busy = True
        try:
            self._hook(number, name)
        finally:
            self._busy = False

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            reads = name == "open" and not arguments[1] & (os.O_CREAT | os.O_WRONLY)
            if self._busy or reads:
                return real(*arguments, **keywords)
            self.log.append((name, arguments))
            self._point(f"before {name}")
            if name == "write":
                half = len(arguments[1]) // 2
                done = real(arguments[0], arguments[1][:half])
                self._point("torn write")
                done += real(arguments[0], arguments[1][half:])
                result: Any = done
            else:
                result = real(*arguments, **keywords)
            if self._after:
                self._point(f"after {name}")
            return result

        return call


def sweep(
    prepare: Callable[[], Callable[[], Any]],
    act: Callable[[str], None],
    check: Callable[[int, Ending], None],
    **faults: Any,
) -> int:
    """Run an operation once per point, in a child that calls ``act`` when it gets there.

    Args:
        prepare: Makes the operation, in the parent.
        act: Called in the child at the point, with the point's name.
        check: Called in the parent afterwards.
        **faults: Passed to ``Faults``.

    Returns:
        The number of points.
    """
    number = 0
    while True:
        operation = prepare()

        def child(at: int = number, run: Callable[[], Any] = operation) -> bool:
            reached = False

            def hook(point: int, name: str) -> None:
                nonlocal reached
                if point == at:
                    reached = True
                    act(name)

            Faults(hook, **faults)
            try:
                run()
            except BaseException:
                if reached:
                    raise
                traceback.print_exc()
                os._exit(70)
            return reached

        ending = in_child(child)
        if ending.value is False:
            return number
        check(number, ending)
        number += 1


def kill(_name: str) -> None:
    """End this process as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


class Harness:
    """What the tests take from this file (pytest imports no helper modules in importlib mode)."""

    originals = ORIGINALS
    instrumented = INSTRUMENTED
    expected = EXPECTED
    nobody = NOBODY
    Faults = Faults
    Ending = Ending
    in_child = staticmethod(in_child)
    sweep = staticmethod(sweep)
    kill = staticmethod(kill)
    git = staticmethod(git)
    make_project = staticmethod(make_project)


@pytest.fixture(scope="session")
def harness() -> type[Harness]:
    return Harness
