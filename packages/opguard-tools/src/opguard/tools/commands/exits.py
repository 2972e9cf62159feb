"""Exit status of the commands for people; the protocol's actions use 0 and 1 only.

2 is argparse's own, for a command line that cannot be obeyed; nothing was started then.
"""

from __future__ import annotations

EXIT_CLEAN = 0
"""Done, and nothing to report: no difference, nothing to reconcile."""

EXIT_FINDINGS = 1
"""Done, and there is something to look at: differences, files to reconcile."""

EXIT_FAILED = 3
"""An operation failed or was interrupted."""
