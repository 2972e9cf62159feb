"""Commands of ``opguard-tools``: one module each, with ``prepare_parser`` and ``run``."""

from __future__ import annotations

import argparse
from typing import Protocol

from opguard.tools.commands.action import ActionCommand
from opguard.tools.commands.capabilities import CapabilitiesCommand
from opguard.tools.commands.diff import DiffCommand
from opguard.tools.commands.recover import RecoverCommand
from opguard.tools.commands.schema import SchemaCommand

__all__ = ["COMMANDS", "Command"]


class Command(Protocol):
    """What the entry point needs of a command."""

    @property
    def help(self) -> str:
        """One line for the list of commands."""

    @property
    def description(self) -> str:
        """Text above the options in the command's own help."""

    @property
    def takes_workload_arguments(self) -> bool:
        """Whether ``-- ARGS`` may follow."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; returns the exit status."""


COMMANDS: dict[str, Command] = {
    "diff": DiffCommand(),
    "recover": RecoverCommand(),
    "schema": SchemaCommand(),
    "capabilities": CapabilitiesCommand(),
    "discover": ActionCommand(
        "discover", "run a workload and record which expressions touch tensors"
    ),
    "prepare": ActionCommand("prepare", "choose callsites from a discovery and write a plan"),
    "trace": ActionCommand("trace", "instrument a checkout as planned, run it, restore it"),
    "compare": ActionCommand("compare", "pair the calls of two traces and write the reports"),
}
