"""Runs a workload's script inside the process that the launcher started, and records it.

Started as ``python -m opguard.tools.worker REQUEST SCRIPT *ARGS``, once per rank. The script runs
as it would with ``python SCRIPT *ARGS``. Only the standard library, a module of the same kind and
``opguard.core`` are imported, and no signal handler is installed.

Source:
    protocol B2-B5.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # `python -m` puts the working directory first, where a checkout's own json.py or platform.py
    # would stand in for the standard library's. The script's folder takes its place below.
    del sys.path[0]

import atexit
import importlib.machinery
import io
import json
import linecache
import os
import tokenize
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from opguard.tools.libraries import BytecodeLinks

EXIT_REFUSED = 78
"""Exit status when this rank cannot take part in the capture (``EX_CONFIG``)."""

_LOADED_AT_STARTUP = frozenset(
    {"_collections_abc", "_sitebuiltins", "abc", "codecs", "encodings", "genericpath", "io", "os"}
    | {"ntpath", "posixpath", "site", "stat", "zipimport"}
)
"""Modules that no file of a script's folder can stand in for: the interpreter loads them first."""


class _RankError(Exception):
    """This rank cannot take part; ``kind`` is a stable identifier for the tool."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class _Ending:
    """How the script ended, as far as it is known when the process exits."""

    def __init__(self) -> None:
        self.status = 0
        self.kind = "returned"
        self.failure: BaseException | None = None


def main(argv: list[str]) -> None:
    """Record ``argv[2]`` as ``argv[1]`` asks for."""
    if len(argv) < 3:
        sys.stderr.write("usage: python -m opguard.tools.worker REQUEST SCRIPT [ARGS...]\n")
        sys.exit(2)
    request = json.loads(Path(argv[1]).read_text(encoding="utf-8"))
    ending = _Ending()
    if request["action"] != "run":
        try:
            _set_up(request, ending)
        except (_RankError, ValueError, OSError) as error:
            _refuse(request, error)
    run_script(argv[2], argv[3:], ending)


def _set_up(request: dict[str, Any], ending: _Ending) -> None:
    """Start recording and arrange for the receipt. Imports nothing that loads torch."""
    plan = _plan(request)
    if plan is not None:
        files = (os.path.join(request["checkout"], file["path"]) for file in plan["files"])
        sys.meta_path.insert(0, BytecodeLinks(files))
    try:
        from opguard.core import _torch_import, determinism
        from opguard.core.environment import identify_rank
        from opguard.core.receipt import publish_receipt
    except ImportError as error:
        raise _RankError(
            "capture_unavailable",
            f"the workload's interpreter {sys.executable} cannot import opguard.core ({error}); "
            "install opguard-core into the environment that the launcher starts",
        ) from error
    rank = identify_rank(os.environ)
    expected = request["request"]["workload"]["ranks"]
    if rank.rank not in expected:
        raise _RankError(
            "unexpected_rank",
            f"rank {rank.rank} (from {rank.source}) is not among the expected ranks {expected}; "
            "make workload.ranks the exact set of ranks that the launcher starts",
        )
    if request["deterministic"]:
        determinism.prepare_environment()
        _torch_import.when_torch_is_imported(determinism.apply)
    capture = Path(request["capture"])
    staging = Path(request["local_root"]) / f"staging-{request['capture_id']}-rank-{rank.rank}"
    staging.mkdir(parents=True, exist_ok=True)
    common: dict[str, Any] = {
        "capture_id": request["capture_id"],
        "rank": rank.rank,
        "regions": request["regions"],
    }
    effects: tuple[str, ...] = ()
    recording: Any
    if request["action"] == "discover":
        from opguard.core import discovery
        from opguard.core.effects import DISCOVERY_EFFECTS

        effects = DISCOVERY_EFFECTS
        recording = discovery.Discovery(Path(request["checkout"]), capture, staging, **common)
    else:
        from opguard.core.selection import Selection
        from opguard.core.session import Session

        _show_original_lines(request)
        deep = _deep_callsites(plan)
        if deep:
            from opguard.core.effects import OPERATOR_EFFECTS

            effects = OPERATOR_EFFECTS
        recording = Session(
            capture,
            staging,
            deep=deep,
            checkout=Path(request["checkout"]),
            selection=Selection.of(**request.get("selection", {})),
            **common,
        )
    recording.start()
    pid = os.getpid()

    def finish() -> None:
        if os.getpid() == pid:
            publish_receipt(
                recording,
                action=request["action"],
                rank=rank,
                deterministic=request["deterministic"],
                exit_status=ending.status,
                exit_kind=ending.kind,
                failure=ending.failure,
                observer_effects=effects,
            )

    # Registered before any of the workload's code runs, so it runs after all of its handlers.
    atexit.register(finish)
    _flush_before_os_exit(finish, pid, ending)


def _plan(request: dict[str, Any]) -> dict[str, Any] | None:
    """The plan of the capture, if there is one."""
    if request.get("plan") is None:
        return None
    plan: dict[str, Any] = json.loads(Path(request["plan"]).read_text(encoding="utf-8"))
    return plan


def _deep_callsites(plan: dict[str, Any] | None) -> frozenset[int]:
    """Callsites of the plan whose operators are recorded as well."""
    sites = [] if plan is None else plan["sites"]
    return frozenset(site["id"] for site in sites if site["depth"] == "aten")


def _show_original_lines(request: dict[str, Any]) -> None:
    """Let tracebacks, ``inspect.getsource`` and ``torch.jit`` read the source without wrappers.

    Entries without a modification time stay in ``linecache`` although the files differ. Line
    numbers are the same in both.
    """
    if request.get("plan") is None:
        return
    sources = Path(request["plan"]).parent / "sources"
    checkouts = {request["checkout"], request["request"]["workload"]["cwd"]}
    for source in sources.rglob("*"):
        lines = linecache.getlines(str(source)) if source.is_file() else []
        for checkout in checkouts if lines else ():
            name = os.path.join(checkout, source.relative_to(sources))
            linecache.cache[name] = (source.stat().st_size, None, lines, name)


def _flush_before_os_exit(finish: Callable[[], None], pid: int, ending: _Ending) -> None:
    """Publish the capture when the script leaves through ``os._exit``, which runs no handler."""
    leave = os._exit

    def _exit(status: int) -> NoReturn:
        if os.getpid() == pid:
            ending.status, ending.kind = status, "os_exit"
            try:
                finish()
            except Exception as error:
                sys.stderr.write(f"opguard: the capture could not be completed: {error}\n")
        leave(status)

    os._exit = _exit


def run_script(script: str, args: list[str], ending: _Ending) -> None:
    """Run ``script`` as ``__main__``, as the interpreter does for ``python SCRIPT ARGS``.

    Raises:
        SystemExit: The script called ``sys.exit``.
        BaseException: The script failed; the traceback, without frames of this module, has been
            printed already.
    """
    path = os.path.abspath(script)
    sys.argv = [script, *args]
    if not sys.flags.safe_path:
        folder = os.path.dirname(os.path.realpath(path))
        sys.path.insert(0, folder)
        _forget_shadowed_modules(folder)
    module = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    module.__dict__.update(
        __builtins__=sys.modules["builtins"],
        __cached__=None,
        __file__=path,
        __loader__=loader,
        __package__=None,
        __spec__=None,
    )
    if sys.version_info < (3, 14):
        module.__dict__.update(__annotations__={})
    # The module stays in sys.modules until the interpreter ends: late threads, pickling and exit
    # handlers look their names up in it.
    sys.modules["__main__"] = module
    try:
        try:
            with open(path, "rb") as file:
                source = file.read()
        except OSError as error:
            sys.stderr.write(f"{sys.executable}: can't open file {path!r}: {error}\n")
            ending.status, ending.kind, ending.failure = 2, "exception", error
            sys.exit(2)
        _check_encoding(source, path)
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as error:
        if ending.failure is None:
            ending.kind, ending.status = "system_exit", _status_of(error)
        raise
    except BaseException as error:
        ending.kind, ending.status, ending.failure = "exception", 1, error
        _report(error)
        raise


def _forget_shadowed_modules(folder: str) -> None:
    """Let a file of the script's folder win over a module that only this worker has loaded.

    ``import platform`` finds the script's own ``platform.py`` under the plain interpreter, which
    has not loaded the standard library's by then.
    """
    own = {name.partition(".")[0] for name in os.listdir(folder)}
    for name in list(sys.modules):
        top = name.partition(".")[0]
        ours = top in sys.stdlib_module_names and top not in _LOADED_AT_STARTUP
        if top in own and ours and getattr(sys.modules[name], "__file__", None) is not None:
            del sys.modules[name]


def _check_encoding(source: bytes, path: str) -> None:
    """Refuse what the interpreter refuses in a file and accepts in a string: a stray byte.

    Raises:
        SyntaxError: A line is not valid in the file's encoding.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    if encoding not in ("utf-8", "utf-8-sig"):
        return
    for number, line in enumerate(source.split(b"\n"), 1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise SyntaxError(
                f"Non-UTF-8 code starting with '\\x{line[error.start]:02x}' on line {number}, but "
                "no encoding declared; see https://peps.python.org/pep-0263/ for details",
                (path, number, 0, ""),
            ) from None


def _status_of(error: SystemExit) -> int:
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def _report(error: BaseException) -> None:
    """Print the traceback as for a script of its own; silence the interpreter's second report."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_globals is globals():
        frames = frames.tb_next
    error.__traceback__ = frames
    sys.excepthook(type(error), error, frames)
    sys.excepthook = lambda *_: None


def _refuse(request: dict[str, Any], error: Exception) -> NoReturn:
    """Leave a note for the tool and end this rank."""
    kind = error.kind if isinstance(error, _RankError) else "rank_failed"
    if isinstance(error, FileExistsError):
        kind = "duplicate_rank"
    folder = Path(request["capture"]) / "errors"
    folder.mkdir(parents=True, exist_ok=True)
    rank = next((os.environ[name] for name in ("RANK", "SLURM_PROCID") if name in os.environ), "0")
    note = {"type": kind, "message": str(error)}
    (folder / f"rank-{rank}-{os.getpid()}.json").write_text(json.dumps(note), encoding="utf-8")
    sys.stderr.write(f"opguard: {error}\n")
    sys.exit(EXIT_REFUSED)


if __name__ == "__main__":
    main(sys.argv)
