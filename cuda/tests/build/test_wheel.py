"""The wheel: where it runs, what it holds, what its library says without a device."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from opguard.core.cuda.library import CudaError, Library, load_library


def test_wheel_holds_the_library_and_no_sources(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {
        f"opguard/cuda/{name}"
        for name in ("__init__.py", "_version.py", "py.typed", "libopguard_cuda.so")
    }


def test_wheel_serves_every_python_on_linux_since_glibc_2_17(wheel):
    assert wheel.name.endswith("-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl")
    process = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(wheel)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(r'platform\s+tag:\s+"manylinux_2_17_x86_64"', process.stdout), process.stdout


def test_library_exports_the_c_abi_alone(built):
    names = set(re.findall(rb"opguard_cuda_[a-z_]+", built.read_bytes()))
    assert b"opguard_cuda_abi_version" in names
    process = subprocess.run(["nm", "-D", "--defined-only", built], capture_output=True, text=True)
    exported = {line.split()[-1].split("@")[0] for line in process.stdout.splitlines()}
    assert exported
    assert {name for name in exported if not name.startswith("opguard_cuda_")} == set()


def test_core_finds_the_library_of_the_installed_wheel():
    library = load_library({})
    assert library.found_via == "distribution opguard-cuda"


def test_library_plans_without_a_device_and_says_when_there_is_none(built):
    library = Library(built, "test")
    assert library.plan(1 << 20, 4, 3, 1056).launches == 2
    if Path("/dev/nvidia0").exists():
        pytest.skip("this machine has a device")
    with pytest.raises(CudaError) as caught:
        library.resident_blocks(0)
    assert caught.value.code > 0
