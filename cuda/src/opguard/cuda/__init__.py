"""The shared library of OpGuard's CUDA fingerprint kernels, as a file in a wheel.

``opguard.core`` finds it here and calls its C ABI; importing this package loads no CUDA library.
"""

from __future__ import annotations

from pathlib import Path

from opguard.cuda._version import __version__

__all__ = ["__version__", "library_path"]


def library_path() -> Path:
    """Where the library lies.

    Returns:
        Path of ``libopguard_cuda.so``. The file is absent when the package was not built by its
        wheel, as in a checkout.
    """
    return Path(__file__).with_name("libopguard_cuda.so")
