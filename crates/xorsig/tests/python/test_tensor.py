"""Torch tensors by their DLPack table: plain ones are read, all others refused with a reason."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import xorsig

torch = pytest.importorskip("torch", reason="torch is not installed")


def by_attributes(tensor: Any, regions: int = 4) -> bytes:
    """The fingerprint by address, shape and strides from the tensor's attributes."""
    return xorsig.fingerprint(
        tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.itemsize, regions
    )


def plain_tensors() -> list[Any]:
    base = torch.arange(3 * 7 * 5, dtype=torch.float32).reshape(3, 7, 5) + 0.5
    needs_grad = base.clone().requires_grad_()
    return [
        base,
        base.transpose(0, 2),
        base[:, 2:, ::2],
        base[1, 2, 3],
        base[:0],
        base[:, :1].expand(3, 9, 5),
        torch.nn.Parameter(base),
        needs_grad,
        needs_grad * 2,
        torch.tensor(3.0),
        base.to(torch.bfloat16),
        base > 9,
        base.to(torch.complex128),
        base.to(torch.float8_e4m3fn),
        base.to(torch.int64),
        torch.zeros(6, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        base.to(torch.complex64).conj().resolve_conj(),
    ]


@pytest.mark.requirement("F1")
@pytest.mark.parametrize("index", range(len(plain_tensors())))
def test_plain_tensors_equal_their_description_by_attributes(index: int) -> None:
    tensor = plain_tensors()[index]
    for regions in (1, 4, 64):
        assert xorsig.fingerprint_tensor(tensor, regions) == by_attributes(tensor, regions)


def test_inference_tensors_are_read() -> None:
    with torch.inference_mode():
        tensor = torch.ones(5)
    assert xorsig.fingerprint_tensor(tensor) == by_attributes(torch.ones(5))


def freed() -> Any:
    tensor = torch.ones(8)[2:]
    tensor.untyped_storage().resize_(0)
    return tensor


def fake() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


def in_transform(transform: Callable[..., Any]) -> Any:
    seen = []

    def look(tensor: Any) -> Any:
        seen.append(tensor)
        with pytest.raises(BufferError):
            xorsig.fingerprint_tensor(tensor)
        return tensor.sum()

    transform(look)(torch.ones(3, 4))
    return seen[0]


class Subclass(torch.Tensor):
    """A subclass with memory of its own."""


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "bytes": (lambda: b"abcd", "neither"),
    "subclass": (lambda: torch.ones(3).as_subclass(Subclass), "neither"),
    "fake": (fake, "neither"),
    "conjugate view": (lambda: torch.ones(3, dtype=torch.complex64).conj(), "conjugation"),
    "negative view": (lambda: torch.ones(3, dtype=torch.complex64).conj().imag, "negation"),
    "freed storage": (freed, "no memory"),
    "zero tensor": (lambda: torch._efficientzerotensor(3), "no memory"),
    "functional": (lambda: torch._to_functional_tensor(torch.ones(3)), "no memory"),
    "sparse": (lambda: torch.eye(3).to_sparse(), "storage"),
    "meta": (lambda: torch.ones(3, device="meta"), "meta"),
    "bits": (lambda: torch.empty(3, dtype=torch.bits8), "not supported"),
}


@pytest.mark.requirement("F12")
@pytest.mark.parametrize("kind", REFUSED)
def test_other_tensors_are_refused_with_the_reason(kind: str) -> None:
    make, reason = REFUSED[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = make()
    with pytest.raises(BufferError, match=reason):
        xorsig.fingerprint_tensor(tensor)


@pytest.mark.parametrize("transform", [torch.func.vmap, torch.func.grad])
def test_tensors_inside_transforms_are_refused(transform: Callable[..., Any]) -> None:
    in_transform(transform)


def test_reading_changes_neither_version_nor_address() -> None:
    tensor = torch.ones(9)
    before = (tensor._version, tensor.data_ptr(), tensor.requires_grad)
    xorsig.fingerprint_tensor(tensor)
    assert (tensor._version, tensor.data_ptr(), tensor.requires_grad) == before


def test_regions_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 64"):
        xorsig.fingerprint_tensor(torch.ones(3), 65)
