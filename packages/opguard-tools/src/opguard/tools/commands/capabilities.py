"""``capabilities``: what this installation can do, as the protocol's envelope."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

_DESCRIPTION = """\
Print versions, formats, available actions, and what this version does not have, as one JSON
document. Works without torch and says whether workloads can be captured with this interpreter.
"""


@dataclass(frozen=True)
class CapabilitiesCommand:
    """Prints the capabilities."""

    help: str = "print what this installation can do, as JSON"
    description: str = _DESCRIPTION
    takes_workload_arguments: bool = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """No options."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Print the envelope."""
        from opguard.tools.actions import capabilities
        from opguard.tools.protocol.envelope import run_enveloped

        return run_enveloped(capabilities.run)
