"""The protocol's actions on the command line: a request file in, one JSON document out."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opguard.tools.protocol.models import ClosedModel

_DESCRIPTION = """\
Protocol action: {help}.

Prints exactly one JSON document on stdout. With exit status 0:
  {{"protocol_version": 1, "ok": true, "result": {{...}}}}
With exit status 1:
  {{"protocol_version": 1, "ok": false, "error": {{"type": "...", "message": "..."}}}}
Progress and diagnostics go to stderr, what the workload prints goes to its log.

  opguard-tools schema {name}                 what the request takes
  opguard-tools {name} --request request.json
"""


@dataclass(frozen=True)
class ActionCommand:
    """Runs one action of the protocol.

    Attributes:
        name: The action.
        help: One line about it.
    """

    name: str
    help: str
    takes_workload_arguments: bool = False

    @property
    def description(self) -> str:
        """Text above the options."""
        return _DESCRIPTION.format(name=self.name, help=self.help)

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add ``--request``."""
        parser.add_argument(
            "--request",
            type=Path,
            required=True,
            metavar="FILE.json",
            help="the request, a UTF-8 JSON object",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the action and print its envelope.

        Source:
            Protocol requirements A1-A7.
        """
        from opguard.tools.protocol.envelope import run_enveloped

        return run_enveloped(lambda: self._perform(arguments.request))

    def _perform(self, path: Path) -> ClosedModel:
        from opguard.tools.actions import ACTIONS
        from opguard.tools.protocol.errors import InterruptedOperationError
        from opguard.tools.protocol.reading import read_request
        from opguard.tools.transaction.signals import Interrupted, interruptible

        action = ACTIONS[self.name]
        try:
            with interruptible():
                request = read_request(path, action.request)
                return action.load()(request)
        except (KeyboardInterrupt, Interrupted) as error:
            raise InterruptedOperationError(
                f"{self.name} was interrupted before it finished; nothing of it is left running, "
                "start it again with a new output directory"
            ) from error
