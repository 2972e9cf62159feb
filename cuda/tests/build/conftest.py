"""The library as the wheel holds it. OPGUARD_CUDA_WHEEL names the wheel (`nox -s cuda` sets it)."""

import os
import zipfile
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def wheel() -> Path:
    named = os.environ.get("OPGUARD_CUDA_WHEEL")
    if not named:
        pytest.skip("OPGUARD_CUDA_WHEEL names no wheel; run `nox -s cuda`")
    return Path(named)


@pytest.fixture(scope="session")
def built(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract("opguard/cuda/libopguard_cuda.so", folder))
