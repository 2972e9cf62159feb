"""Entry point of ``opguard-tools``: finds the command and runs it.

Only the standard library is imported here and by the commands' modules, so that ``--help`` is
there at once; what a command works with, it imports when it runs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from opguard.tools._version import __version__
from opguard.tools.commands import COMMANDS, Command

_DESCRIPTION = """\
Find the first operation, and the line of source, at which two trainings that should agree stop
agreeing.

For people:
  opguard-tools diff --baseline old/ --candidate new/ --script train.py -- --seed 0

For programs (one JSON document on stdout, exit status 0 or 1):
  opguard-tools capabilities
  opguard-tools schema discover
  opguard-tools discover --request request.json
"""

_EPILOG = """\
OpGuard runs the workload with your permissions and instruments checkouts in place for the time of
a run; it is no sandbox. If a run was killed, `opguard-tools recover CHECKOUT` puts the sources
back.
"""


class _Parser(argparse.ArgumentParser):
    """Explains a forgotten ``--``, and answers a command with ``--json`` in JSON as well."""

    as_json = False

    def error(self, message: str) -> NoReturn:
        """Print usage and message, and exit with status 2."""
        if message.startswith("unrecognized arguments:"):
            message += " (arguments of the training's own script stand after --)"
        if self.as_json:
            print(json.dumps({"error": {"type": "usage", "message": message}}), flush=True)
        super().error(message)


def build_parser() -> argparse.ArgumentParser:
    """The command line's parser, with one subparser per command."""
    parser = _Parser(
        prog="opguard-tools",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"opguard-tools {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(
            name,
            help=command.help,
            description=command.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.prepare_parser(subparser)
        subparser.set_defaults(run=command.run, parser=subparser)
    return parser


def split_workload_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Split a command line at the first ``--``.

    What follows belongs to the workload and must not be looked at: it may hold options of the same
    names, and further ``--``.

    Returns:
        The part before, and the part after or None without a ``--``.
    """
    if "--" not in arguments:
        return list(arguments), None
    position = list(arguments).index("--")
    return list(arguments[:position]), list(arguments[position + 1 :])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: Arguments without the program's name; those of the process by default.

    Returns:
        The exit status.

    Raises:
        SystemExit: With status 2 after a malformed command line, with 0 after ``--help``.

    Source:
        Protocol requirements A1, A6.
    """
    own, workload = split_workload_arguments(sys.argv[1:] if arguments is None else arguments)
    # The parser itself may be what fails, so it is not asked.
    _Parser.as_json = "--json" in own
    parsed = build_parser().parse_args(own)
    command: Command = COMMANDS[parsed.command]
    if workload is not None and not command.takes_workload_arguments:
        parsed.parser.error("this command takes no arguments for a workload after --")
    parsed.workload_arguments = workload or []
    try:
        status = command.run(parsed)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of a pipe (`| head`) has seen enough; the interpreter must not flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return status
