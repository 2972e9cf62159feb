"""Puts the compiled library into the wheel."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CudaLibraryHook(BuildHookInterface[Any]):
    """Compiles the library; the wheel serves every Python, and Linux since glibc 2.17."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name the library's place in the wheel."""
        if version == "editable":
            return
        sys.path.insert(0, str(Path(self.root) / "tools"))
        import opguard_cuda_build

        self._folder = tempfile.TemporaryDirectory()
        library = Path(self._folder.name) / "libopguard_cuda.so"
        opguard_cuda_build.build_library(library)
        build_data["force_include"][str(library)] = "opguard/cuda/libopguard_cuda.so"
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Drop the compiled file."""
        if version != "editable":
            self._folder.cleanup()
