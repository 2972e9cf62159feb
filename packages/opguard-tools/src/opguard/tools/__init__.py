"""Command line and comparison engine of OpGuard; works without torch.

Importing the package loads nothing else, so that ``python -m opguard.tools.worker`` starts a
workload without dragging the command line's dependencies into its process.
"""

from opguard.tools._version import __version__

__all__ = ["__version__"]
