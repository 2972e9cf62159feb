"""The options of ``diff``, checked: what is wrong is a usage error, before anything is started."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from opguard.tools.commands.workflow import SideOptions, WorkloadOptions, default_launcher
from opguard.tools.formats import EMBEDDED_NAME, PLAN_NAME, REQUEST_NAME
from opguard.tools.launch.paths import check_paths, is_within, resolve
from opguard.tools.launch.selection import VARIABLES, check_part
from opguard.tools.protocol.errors import InvalidSettingError, OpGuardError

_OF_A_SIDE = ("python", "launcher", "env")
_OF_RUNS = (
    "baseline", "candidate", "script", "launcher", "nproc", "env", "local_root", "depth",
    *(f"{side}_{option}" for side in ("baseline", "candidate") for option in _OF_A_SIDE),
)  # fmt: skip
"""Options that say how something is run."""


class UsageError(Exception):
    """The options cannot be obeyed; the message names the one at fault."""


@dataclass(frozen=True)
class CheckoutOptions:
    """``diff --baseline DIR --candidate DIR``.

    Attributes:
        checkouts: ``baseline`` and ``candidate``, resolved.
        workload: How both sides are run.
        output: Directory to make.
        local_root: Staging directory; None for a temporary one.
        repeats: Further traces of the baseline.
    """

    checkouts: dict[str, Path]
    workload: WorkloadOptions
    output: Path
    local_root: Path | None
    repeats: int = 0


@dataclass(frozen=True)
class CaptureOptions:
    """``diff --captures A B``.

    Attributes:
        baseline: Output directory of a trace.
        candidate: Output directory of another trace.
        partial: Accept captures that are incomplete.
        output: Directory to make.
        repeats: Output directories of further traces of the baseline.
    """

    baseline: Path
    candidate: Path
    partial: bool
    output: Path
    repeats: tuple[Path, ...] = ()


def parse_options(arguments: argparse.Namespace) -> CheckoutOptions | CaptureOptions:
    """Check the parsed command line.

    Raises:
        UsageError: Options are missing, contradict each other, or name what is not there.
    """
    if arguments.captures is not None:
        return _capture_options(arguments)
    return _checkout_options(arguments)


def _capture_options(arguments: argparse.Namespace) -> CaptureOptions:
    for option in (*_OF_RUNS, *VARIABLES):
        if getattr(arguments, option) not in (None, []):
            name = option.replace("_", "-")
            raise UsageError(f"--{name} runs a workload, --captures does not: leave one out")
    if arguments.workload_arguments:
        raise UsageError("--captures runs no workload, so it takes no arguments after --")
    if arguments.repeat:
        raise UsageError("--repeat runs a workload, --captures does not: name existing --repeats")
    sides = [_trace_output("--captures", folder) for folder in arguments.captures]
    repeats = [_trace_output("--repeats", folder) for folder in arguments.repeats]
    output = _output(arguments.output, [*sides, *repeats])
    return CaptureOptions(sides[0], sides[1], arguments.partial, output, tuple(repeats))


def _trace_output(option: str, folder: Path) -> Path:
    """The trace output that a folder is, or holds as ``trace`` (one side of a ``diff`` output)."""
    for candidate in (folder, folder / "trace"):
        identities = (REQUEST_NAME, EMBEDDED_NAME)
        identified = any((candidate / name).is_file() for name in identities)
        if identified and (candidate / PLAN_NAME).is_file():
            return resolve(str(candidate))
    raise UsageError(
        f"{option}: {folder} is not the output of a trace (it has no {PLAN_NAME} and "
        f"no {REQUEST_NAME}), nor of opguard.core.capture"
    )


def _checkout_options(arguments: argparse.Namespace) -> CheckoutOptions:
    if arguments.partial:
        raise UsageError("--partial goes with --captures")
    if arguments.repeats:
        raise UsageError("--repeats goes with --captures; --repeat N runs the baseline again")
    for option in ("baseline", "candidate"):
        if getattr(arguments, option) is None:
            raise UsageError(f"--{option} is needed (or --captures A B)")
    checkouts: dict[str, Path] = {}
    script = arguments.script if arguments.script is not None else "train.py"
    for option in ("baseline", "candidate"):
        folder = resolve(str(getattr(arguments, option)))
        if not folder.is_dir():
            raise UsageError(f"--{option}: {folder} is not a directory")
        if not (folder / script).is_file():
            raise UsageError(f"--script: there is no {folder / script}")
        checkouts[option] = folder
    output = _output(arguments.output, list(checkouts.values()))
    local_root = None if arguments.local_root is None else resolve(str(arguments.local_root))
    for checkout in checkouts.values():
        try:
            check_paths(
                str(output),
                checkout=str(checkout),
                local_root=None if local_root is None else str(local_root),
            )
        except OpGuardError as error:
            raise UsageError(error.message) from error
    workload = _workload(arguments, script)
    return CheckoutOptions(checkouts, workload, output, local_root, arguments.repeat)


def _workload(arguments: argparse.Namespace, script: str) -> WorkloadOptions:
    ranks: int | None = arguments.nproc
    common = _environment("--env", arguments.env) | _selection(arguments)
    return WorkloadOptions(
        script=script,
        sides={side: _side(arguments, side, common) for side in ("baseline", "candidate")},
        arguments=arguments.workload_arguments,
        ranks=1 if ranks is None else ranks,
        timeout_seconds=arguments.timeout,
        depth=arguments.depth or "auto",
    )


def _side(arguments: argparse.Namespace, side: str, common: dict[str, str]) -> SideOptions:
    """How one side is started: its own options come before those for both."""
    python, launcher, env = (getattr(arguments, f"{side}_{option}") for option in _OF_A_SIDE)
    if python is not None and launcher is not None:
        raise UsageError(f"--{side}-python and --{side}-launcher both say what starts the program")
    own = _environment(f"--{side}-env", env)
    if launcher is not None:
        started = _launcher(f"--{side}-launcher", launcher)
    elif python is not None:
        started = default_launcher(arguments.nproc, _interpreter(f"--{side}-python", python))
    elif arguments.launcher is not None:
        started = _launcher("--launcher", arguments.launcher)
    else:
        started = default_launcher(arguments.nproc)
    return SideOptions(started, common | own)


def _launcher(option: str, text: str) -> list[str]:
    try:
        launcher = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    if not launcher:
        raise UsageError(f"{option} is empty")
    return launcher


def _interpreter(option: str, given: Path) -> str:
    """The interpreter that a path names: itself, or that of a virtual environment.

    Symbolic links are kept: through them an interpreter knows its environment.
    """
    path = given.expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    found = shutil.which(path)
    if found is None:
        raise UsageError(
            f"{option}: {given} is no Python interpreter and no virtual environment (there is no "
            f"program {path})"
        )
    return os.path.abspath(found)


def _environment(option: str, assignments: Iterable[str]) -> dict[str, str]:
    environment: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not name or not equals:
            raise UsageError(f"{option}: {assignment!r} is not NAME=VALUE")
        environment[name] = value
    return environment


def _selection(arguments: argparse.Namespace) -> dict[str, str]:
    """The options that limit the recording, as the workload's variables."""
    variables: dict[str, str] = {}
    for part, variable in VARIABLES.items():
        text = getattr(arguments, part)
        if text is None:
            continue
        if any(assignment.startswith(f"{variable}=") for assignment in arguments.env):
            raise UsageError(f"--{part} and --env {variable}=… say the same thing: leave one out")
        try:
            check_part(part, text, f"--{part}")
        except InvalidSettingError as error:
            raise UsageError(error.message) from error
        variables[variable] = text
    return variables


def _output(given: Path | None, apart_from: list[Path]) -> Path:
    """The directory to make: as given, or a new one beside the checkouts or in the current one."""
    if given is not None:
        if os.path.lexists(given):
            raise UsageError(f"--output: {given} exists already; choose a new directory")
        return resolve(str(given))
    parent = Path.cwd().resolve()
    while inside := [folder for folder in apart_from if is_within(parent, folder)]:
        parent = inside[0].parent
    stem = time.strftime("opguard-diff-%Y%m%dT%H%M%S")
    output = parent / stem
    attempt = 1
    while os.path.lexists(output):
        attempt += 1
        output = parent / f"{stem}-{attempt}"
    return output
