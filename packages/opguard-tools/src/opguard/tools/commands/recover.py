"""``recover``: put the sources of a checkout back after an operation that was killed."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from opguard.tools.commands.exits import EXIT_CLEAN, EXIT_FAILED, EXIT_FINDINGS

_DESCRIPTION = """\
Put the sources of a checkout back after `trace` or `diff` was killed or the machine went down.

Only files whose content is exactly the instrumented one are restored, each from a verified copy.
A file that was edited since is left alone and listed; the checkout then stays blocked until you
have reconciled it. Running the command again is safe.

Exit status: 0 the checkout is as it was, 1 files need your attention, 2 usage, 3 it failed.

  opguard-tools recover path/to/checkout
"""


@dataclass(frozen=True)
class RecoverCommand:
    """Restores a checkout."""

    help: str = "restore the sources of a checkout after a killed run"
    description: str = _DESCRIPTION
    takes_workload_arguments: bool = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the checkout."""
        parser.add_argument("checkout", type=Path, metavar="CHECKOUT", help="the folder to restore")
        parser.add_argument("--json", action="store_true", help="print the report as JSON")

    def run(self, arguments: argparse.Namespace) -> int:
        """Restore and report.

        Source:
            Protocol requirement D7.
        """
        from opguard.tools.protocol.errors import OpGuardError
        from opguard.tools.transaction import RecoveryError, recover
        from opguard.tools.transaction.layout import state_directory

        try:
            report = recover(arguments.checkout)
            if not state_directory(report.checkout).is_dir():
                raise RecoveryError(
                    f"no operation has run in {report.checkout} (it has no .opguard folder), so "
                    "there is nothing to put back; name the checkout itself, as it was given to "
                    "`diff` or as `workload.cwd`"
                )
        except OpGuardError as error:
            if arguments.json:
                document = {"error": {"type": error.error_type, "message": error.message}}
                print(json.dumps(document))
            print(f"opguard recover: {error.error_type}: {error.message}", file=sys.stderr)
            return EXIT_FAILED
        if arguments.json:
            print(json.dumps(report.document()))
        else:
            print("\n".join(report.lines()))
        return EXIT_CLEAN if report.complete else EXIT_FINDINGS
