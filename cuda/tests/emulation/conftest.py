import subprocess
from pathlib import Path

import opguard_cuda_build
import pytest
from emulated import EmulatedLibrary

# Tiles of 2 KiB, so that small tensors meet the boundaries of tiles, blocks and regions.
SMALL_TILES = ("-DOPGUARD_THREADS=64", "-DOPGUARD_UNROLL=2")


def build(folder: Path, name: str, *flags: str) -> EmulatedLibrary:
    path = folder / f"{name}.so"
    try:
        opguard_cuda_build.build_emulation(path, *flags)
    except FileNotFoundError:
        pytest.fail("a C++ compiler is needed (g++, or the one that CXX names)")
    except subprocess.CalledProcessError as error:
        pytest.fail(f"the emulation does not compile: {error}")
    return EmulatedLibrary(path)


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> EmulatedLibrary:
    """The kernels with small blocks and tiles."""
    return build(tmp_path_factory.mktemp("emulation"), "small", *SMALL_TILES)


@pytest.fixture(scope="session")
def full(tmp_path_factory) -> EmulatedLibrary:
    """The kernels as they run on devices."""
    return build(tmp_path_factory.mktemp("emulation"), "full")
