"""Finding and checking the kernel library, with none, broken and foreign ones."""

import subprocess

import pytest
import torch

from opguard.core import _fallback, region_signatures, xor_signature
from opguard.core.cuda.kernels import Kernels
from opguard.core.cuda.library import (
    ABI_VERSION,
    ENVIRONMENT_VARIABLE,
    Attempt,
    Library,
    LibraryNotUsableError,
    load_library,
)

VARIABLE = f"environment variable {ENVIRONMENT_VARIABLE}"


@pytest.fixture
def compiled(tmp_path):
    """A function that compiles a C source into a shared library."""

    def compile_source(source: str):
        path = tmp_path / "library.so"
        (tmp_path / "library.cpp").write_text(f'extern "C" {{ {source} }}')
        subprocess.run(
            ["g++", "-shared", "-fPIC", "-o", path, tmp_path / "library.cpp"], check=True
        )
        return path

    return compile_source


def attempts_with(path) -> list[Attempt]:
    with pytest.raises(LibraryNotUsableError) as caught:
        load_library({ENVIRONMENT_VARIABLE: str(path)})
    return caught.value.attempts


def test_a_file_that_is_missing_is_named_with_the_step_that_named_it(tmp_path):
    (attempt,) = attempts_with(tmp_path / "missing.so")
    assert attempt[:2] == (VARIABLE, str(tmp_path / "missing.so"))
    assert "No such file" in attempt.reason


def test_a_corrupt_file_is_not_loaded(tmp_path):
    path = tmp_path / "corrupt.so"
    path.write_bytes(b"\x7fELF" + b"\x00" * 100)
    (attempt,) = attempts_with(path)
    assert attempt[:2] == (VARIABLE, str(path))


def test_a_library_of_another_abi_version_is_refused(compiled):
    path = compiled("int opguard_cuda_abi_version() { return 99; }")
    (attempt,) = attempts_with(path)
    assert attempt.reason == f"its ABI version is 99, and {ABI_VERSION} is needed"


def test_a_library_without_the_abi_is_refused(compiled):
    (attempt,) = attempts_with(compiled("int something_else() { return 1; }"))
    assert attempt.reason == "it is not a library of opguard-cuda"


def test_a_library_that_lacks_a_function_is_refused(compiled):
    path = compiled(f"int opguard_cuda_abi_version() {{ return {ABI_VERSION}; }}")
    (attempt,) = attempts_with(path)
    assert attempt.reason.startswith("it lacks opguard_cuda_")


def test_a_named_library_is_the_only_one_asked(tmp_path):
    # Taking another one in its place would hide that the named one is broken.
    assert [step for step, *_ in attempts_with(tmp_path / "missing.so")] == [VARIABLE]


def test_every_place_is_listed_when_none_names_a_library(monkeypatch):
    monkeypatch.setattr("importlib.import_module", _no_module)
    with pytest.raises(LibraryNotUsableError) as caught:
        load_library({})
    assert caught.value.attempts == [
        Attempt(VARIABLE, "-", "names no library"),
        Attempt("distribution opguard-cuda", "-", "names no library"),
    ]
    assert "tensor operations" in str(caught.value)
    assert ENVIRONMENT_VARIABLE in str(caught.value)


def _no_module(name):
    raise ModuleNotFoundError(name)


@pytest.mark.requirement("F10")
def test_an_unusable_library_is_reported_once_and_never_asked_again(tmp_path):
    calls, reports = [], []

    def load() -> Library:
        calls.append(1)
        return load_library({ENVIRONMENT_VARIABLE: str(tmp_path / "missing.so")})

    kernels = Kernels(load, report=reports.append)
    assert [kernels.usable(device) for device in (0, 0, 1)] == [False] * 3
    assert (len(calls), len(reports)) == (1, 1)
    assert reports[0] == kernels.problem
    assert str(tmp_path / "missing.so") in kernels.problem


def test_values_on_a_device_without_the_library_are_those_of_the_tensor_operations():
    # The meta device has no values; the tensor operations run anywhere, here on the CPU.
    tensor = torch.arange(1000, dtype=torch.int16)
    expected = region_signatures(tensor)
    assert torch.equal(_fallback.region_xor(tensor, 4), expected)


def test_the_compiler_keeps_region_signatures_as_one_operator():
    @torch.compile(fullgraph=True, backend="eager")
    def compiled(tensor):
        doubled = tensor * 2
        return doubled, region_signatures(doubled, 4)

    doubled, values = compiled(torch.arange(100.0))
    assert torch.equal(values, region_signatures(doubled, 4))
    assert xor_signature(doubled) == xor_signature(torch.arange(100.0) * 2)
