"""Command lines and variables of two runs, set side by side without what differs by nature.

Two runs that should agree still have checkouts, output folders, scratch folders and run names of
their own. None of these explains a difference, so they are left out before values are compared.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

HIDDEN: Final = "(not shown)"
"""Stands for the value of an option or variable whose name says that it is a secret."""

_SCRATCH = re.compile(r"/(?:tmp|var/tmp|dev/shm)/[^/\s:,;]+")
_NUMBER = re.compile(r"-\.?\d")
_WRITTEN = re.compile(
    r"(?:^|[-_.])(?:out|outputs?|outdir|saves?|logs?|logdir|results?|artifacts?|tensorboard|tmp|"
    r"temp|runs?|exp|experiment|work)(?:[-_.]?(?P<what>dir|directory|path|folder|file|root|name|id)"
    r")?$",
    re.IGNORECASE,
)
"""Options and variables that say where a run writes, or what it is called."""

_SECRET = re.compile(
    r"(?:^|[-_.])(?:token|secret|password|passwd|credentials?|(?:api|access|secret)[-_]?key)$",
    re.IGNORECASE,
)
_UNRELATED_VARIABLES: Final = frozenset(
    {
        "HOME", "HOST", "HOSTNAME", "LOGNAME", "MASTER_ADDR", "MASTER_PORT", "OLDPWD", "PWD",
        "PYTHONPYCACHEPREFIX", "SHLVL", "TEMP", "TEMPDIR", "TMP", "TMPDIR", "USER", "_",
        "RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
    }
)  # fmt: skip
_UNRELATED_PREFIXES: Final = (
    "OPGUARD_", "TORCHELASTIC_", "SLURM_", "OMPI_", "PMI_", "SSH_", "XDG_", "WANDB_", "MLFLOW_",
    "COMET_",
)  # fmt: skip
"""What a launcher, a login or an experiment tracker sets; ``OPGUARD_*`` is in the receipts."""


class OwnPlaces:
    """The folders that belong to one run, replaced by names that both runs have in common."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        """Take the folders from a run's ``worker-request.json``."""
        workload = _workload(request)
        output = request.get("request", {}).get("output")
        places = [
            (request.get("checkout"), "<checkout>"),
            (workload.get("cwd"), "<checkout>"),
            (output, "<output>"),
            (request.get("local_root"), "<local_root>"),
        ]
        known = {str(place).rstrip("/"): name for place, name in places if place}
        self._places = sorted(known.items(), key=lambda entry: -len(entry[0]))

    def hide(self, text: str) -> str:
        """The text with the run's own folders and scratch folders replaced."""
        for place, name in self._places:
            text = re.sub(re.escape(place) + r"(?=$|[/\s:,;])", name, text)
        return _SCRATCH.sub("<scratch>", text)


def differing_options(
    baseline: Mapping[str, Any], candidate: Mapping[str, Any]
) -> Iterator[tuple[str, str | None, str | None]]:
    """Options and positional arguments that differ: name, and the value on each side.

    Args:
        baseline: The baseline's ``worker-request.json``.
        candidate: The candidate's.
    """
    left, right = (
        _options(_workload(request).get("args", ()), OwnPlaces(request))
        for request in (baseline, candidate)
    )
    for name in _names(left, right):
        values = tuple(", ".join(side[name]) if name in side else None for side in (left, right))
        if values[0] != values[1] and not _is_written(name, values):
            yield name, *_shown(name, values)


def differing_variables(
    baseline: Mapping[str, Any], candidate: Mapping[str, Any], known: frozenset[str]
) -> Iterator[tuple[str, str | None, str | None]]:
    """Variables that the requests set differently.

    Args:
        baseline: The baseline's ``worker-request.json``.
        candidate: The candidate's.
        known: Variables that are looked at elsewhere.
    """
    left, right = (
        {name: OwnPlaces(request).hide(value) for name, value in _workload(request)["env"].items()}
        if _workload(request).get("env")
        else {}
        for request in (baseline, candidate)
    )
    for name in _names(left, right):
        values = (left.get(name), right.get(name))
        if values[0] == values[1] or name in known or name in _UNRELATED_VARIABLES:
            continue
        if not name.startswith(_UNRELATED_PREFIXES) and not _is_written(name, values):
            yield name, *_shown(name, values)


def program(request: Mapping[str, Any]) -> str:
    """The script, relative to the checkout where it lies inside."""
    return (
        OwnPlaces(request)
        .hide(str(_workload(request).get("script", "")))
        .removeprefix("<checkout>/")
    )


def launcher(request: Mapping[str, Any]) -> str:
    """The launcher with interpreters by their plain name.

    An interpreter of another environment shows in the versions, if it is another one.
    """
    parts = (os.path.basename(part) or part for part in _workload(request).get("launcher", ()))
    return " ".join(re.sub(r"^python[\d.]*$", "python", part) for part in parts)


def _workload(request: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = request.get("request", {}).get("workload", {})
    return found


def _options(arguments: Iterable[str], places: OwnPlaces) -> dict[str, list[str]]:
    """Values by option; the order of options means nothing, that of values of one option does.

    ``--name value``, ``--name=value``, ``name=value`` and flags are understood; what follows an
    option and is none itself is taken for its value, and the rest is positional.
    """
    found: dict[str, list[str]] = {}
    option: str | None = None
    positional = 0
    for argument in arguments:
        text = places.hide(argument)
        is_option = argument.startswith("-") and argument != "-" and not _NUMBER.match(argument)
        name, equals, value = text.partition("=")
        if is_option or (equals and option is None and name.replace(".", "").isidentifier()):
            found.setdefault(name, [])
            option = None if equals else name
            if equals:
                found[name].append(value)
        elif option is not None:
            found[option].append(text)
            option = None
        else:
            positional += 1
            found[f"argument {positional}"] = [text]
    return {name: values or ["given"] for name, values in found.items()}


def _names(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[str]:
    return [*left, *(name for name in right if name not in left)]


def _is_written(name: str, values: Sequence[str | None]) -> bool:
    """Whether an option names a place to write to, or the run itself."""
    match = _WRITTEN.search(name)
    if match is None:
        return False
    return match["what"] is not None or any(value and "/" in value for value in values)


def _shown(name: str, values: Sequence[str | None]) -> tuple[str | None, str | None]:
    left, right = values
    if _SECRET.search(name):
        return (HIDDEN if left is not None else None, HIDDEN if right is not None else None)
    return left, right
