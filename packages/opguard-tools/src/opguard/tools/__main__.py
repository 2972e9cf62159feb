"""``python -m opguard.tools``: the same program as the console script ``opguard-tools``."""

import sys

from opguard.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
