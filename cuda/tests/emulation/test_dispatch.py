"""The tracer's own way to the kernels, on the emulated device."""

import pytest
import torch

from opguard.core.cuda.kernels import Kernels
from opguard.core.fingerprint import signature_bytes


@pytest.fixture
def kernels(full):
    used = Kernels(lambda: full, lambda device: 0)
    full.watch(0, (1 << 64) - 1)
    assert used.usable(0)
    return used


def as_bytes(values: torch.Tensor) -> bytes:
    return values.numpy().tobytes()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(1000.0),
        torch.arange(300_000, dtype=torch.int32)[3:],
        torch.arange(1000, dtype=torch.uint8)[1:998],
        torch.arange(600.0).reshape(20, 30).T,
        torch.arange(600.0, dtype=torch.bfloat16).reshape(20, 30)[:, ::2],
        torch.arange(8.0).expand(5, 8),
        torch.tensor(3.5),
        torch.empty(0, 4),
        torch.randn(64, requires_grad=True),
        torch.complex(torch.arange(9.0), torch.ones(9)),
    ],
    ids=lambda tensor: f"{tuple(tensor.shape)}-{tensor.stride()}-{tensor.dtype}",
)
@pytest.mark.requirement("F8")
def test_signatures_of_a_device_are_those_of_the_host(kernels, tensor):
    for regions in (1, 4, 64):
        expected = signature_bytes(tensor.detach(), regions)
        assert as_bytes(kernels.signature(tensor, regions)) == expected
        plain = as_bytes(kernels.signature(tensor, regions, mixed=False))
        assert plain == expected[: 4 * regions]


def test_signature_is_written_into_the_slot_that_is_given(kernels):
    slots = torch.full((3, 8), 7, dtype=torch.int32)
    tensor = torch.arange(70.0)
    result = kernels.signature(tensor, 4, out=slots[1])
    assert result.data_ptr() == slots[1].data_ptr()
    assert as_bytes(slots[1]) == signature_bytes(tensor, 4)
    assert slots[0].eq(7).all()
    assert slots[2].eq(7).all()


def test_a_device_that_does_not_exist_is_reported_and_not_used(full):
    reports = []
    kernels = Kernels(lambda: full, lambda device: 0, reports.append)
    assert not kernels.usable(5)
    assert reports == ["opguard_cuda_resident_blocks failed: invalid device ordinal (101)"]


def test_reading_changes_neither_version_nor_gradient_of_a_tensor(kernels):
    tensor = torch.randn(100, requires_grad=True)
    version = tensor._version
    kernels.signature(tensor, 4)
    assert (tensor._version, tensor.grad, tensor.requires_grad) == (version, None, True)
