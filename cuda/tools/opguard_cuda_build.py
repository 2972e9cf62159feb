"""Builds the CUDA library with nvcc from PyPI's wheels, and its emulation with the host's compiler.

    python cuda/tools/opguard_cuda_build.py OUTPUT              # libopguard_cuda.so
    python cuda/tools/opguard_cuda_build.py --emulation OUTPUT

The first needs ``cuda-toolkit[nvcc]==13.0.3.*`` and ``ziglang`` in the interpreter's environment.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "csrc"
HOST_SOURCE = "host/opguard_cuda.cu"

# Machine code for these parts; each also runs on later parts of its family (8.0 on 8.6 and 8.9).
ARCHITECTURES = ("80", "90", "100", "120")
# Intermediate code for every later part.
PORTABLE = "80"
# Highest glibc symbol version of the library, that of manylinux2014.
GLIBC = "2.17"

# Products and sums stay apart, as in the machine code of devices, where `fma` is written out.
EMULATION_FLAGS = (
    *("-std=c++17", "-O2", "-g", "-ffp-contract=off", "-fvisibility=hidden"),
    *("-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-DOPGUARD_EMULATION"),
)
SANITIZERS = ("-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


class ToolkitError(Exception):
    """What a build needs is not installed."""


def toolkit() -> Path:
    """The ``nvidia/cu13`` folder of the running environment.

    Raises:
        ToolkitError: There is none.
    """
    for entry in sys.path:
        root = Path(entry) / "nvidia" / "cu13"
        if (root / "bin" / "nvcc").is_file() and (root / "lib" / "libcudart_static.a").is_file():
            return root
    raise ToolkitError(
        "no nvcc in this environment; install 'cuda-toolkit[nvcc]==13.0.3.*' from PyPI"
    )


def compile_object(output: Path, *flags: str, architectures: Sequence[str] = ARCHITECTURES) -> str:
    """Compile the library's source for every architecture.

    Args:
        output: The object file.
        flags: More arguments for nvcc.
        architectures: Compute capabilities without the dot.

    Returns:
        What nvcc printed: with ``-Xptxas=-v`` the resources of each kernel.

    Raises:
        ToolkitError: nvcc is not installed.
        subprocess.CalledProcessError: It failed.
    """
    root = toolkit()
    targets = [f"-gencode=arch=compute_{n},code=sm_{n}" for n in architectures]
    targets.append(f"-gencode=arch=compute_{PORTABLE},code=compute_{PORTABLE}")
    host_flags = "-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics"
    process = subprocess.run(
        [
            *(str(root / "bin" / "nvcc"), "-std=c++17", "-O3", "-c", *targets),
            *(f"-Xcompiler={host_flags},-Wall,-Wextra", "-Werror=all-warnings", *flags),
            *("-o", str(output), str(SOURCES / HOST_SOURCE)),
        ],
        # nvcc finds its parts beside itself; a CUDA of the system must not mix in.
        env={"PATH": f"{root / 'bin'}:/usr/local/bin:/usr/bin:/bin"},
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return process.stdout


def link_library(compiled: Path, output: Path) -> None:
    """Link the shared library against an old glibc, exporting the C ABI alone.

    Args:
        compiled: Result of :func:`compile_object`.
        output: The shared library.

    Raises:
        ToolkitError: nvcc or ziglang is not installed.
        subprocess.CalledProcessError: The linker failed.
    """
    if importlib.util.find_spec("ziglang") is None:
        raise ToolkitError("no linker for an old glibc; install 'ziglang' from PyPI")
    with tempfile.TemporaryDirectory() as temporary:
        exports = Path(temporary) / "exports.map"
        exports.write_text("{ global: opguard_cuda_*; local: *; };\n")
        subprocess.run(
            [
                *(sys.executable, "-m", "ziglang", "cc", "-target", f"x86_64-linux-gnu.{GLIBC}"),
                *("-shared", "-s", "-o", str(output), str(compiled), f"-L{toolkit() / 'lib'}"),
                *("-lcudart_static", "-lrt", "-lpthread", "-ldl"),
                *(f"-Wl,--version-script={exports}", "-Wl,-z,defs"),
            ],
            env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(Path(temporary) / "zig")},
            check=True,
        )


def build_library(output: Path) -> None:
    """Compile and link ``libopguard_cuda.so``; raises as the two steps do."""
    with tempfile.TemporaryDirectory() as temporary:
        compiled = Path(temporary) / "opguard_cuda.o"
        compile_object(compiled)
        link_library(compiled, output)


def build_emulation(
    output: Path, *flags: str, sources: Path = SOURCES, driver: Path | None = None
) -> None:
    """Compile the same source for the emulated device.

    Args:
        output: A shared library with the C ABI, or a program when there is a driver.
        flags: More arguments for the compiler.
        sources: Folder of the sources, which a test may have changed.
        driver: Source of a ``main`` to link with.

    Raises:
        subprocess.CalledProcessError: The compiler failed.
    """
    kind = ("-shared", "-fPIC") if driver is None else (str(driver), f"-I{sources}")
    subprocess.run(
        [
            *(os.environ.get("CXX", "g++"), *EMULATION_FLAGS, *flags),
            *("-x", "c++", str(sources / HOST_SOURCE), *kind, "-o", str(output)),
        ],
        check=True,
    )


def main() -> None:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("output", type=Path)
    parser.add_argument("--emulation", action="store_true", help="for the emulated device")
    arguments = parser.parse_args()
    build = build_emulation if arguments.emulation else build_library
    build(arguments.output)


if __name__ == "__main__":
    main()
