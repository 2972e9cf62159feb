"""``schema``: JSON Schemas of requests and results."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass

_ACTIONS = ("capabilities", "discover", "prepare", "trace", "compare")
_DESCRIPTION = """\
Print the JSON Schemas of an action's request and result with an example request, or, without an
action, of all actions, with the envelope and the list of error types.

  opguard-tools schema
  opguard-tools schema discover
"""


@dataclass(frozen=True)
class SchemaCommand:
    """Prints schemas."""

    help: str = "print the JSON Schemas of requests and results"
    description: str = _DESCRIPTION
    takes_workload_arguments: bool = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the action."""
        parser.add_argument(
            "action",
            nargs="?",
            choices=_ACTIONS,
            metavar="ACTION",
            help=f"one of: {', '.join(_ACTIONS)}; all of them by default",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Print the document.

        Source:
            Protocol requirement A9.
        """
        from opguard.tools.protocol.schema import action_schema, protocol_schema

        chosen = arguments.action
        document = protocol_schema() if chosen is None else action_schema(chosen)
        print(json.dumps(document, indent=2))
        return 0
