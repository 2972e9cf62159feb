import warnings

import numpy
import pytest
import torch

from opguard.core.fingerprint import signature_bytes
from opguard.core.recording.names import Names
from opguard.core.recording.tensors import TensorReader


@pytest.fixture
def read(writer):
    reader = TensorReader(writer, Names(writer), 4)

    def read(tensor):
        found = {}
        for slot, reading in reader.read("t", tensor):
            note = writer.names[reading.note] if reading.signature is None else None
            found[slot] = (writer.layouts[reading.layout][0], reading.signature, note)
        return found

    return read


def signature(tensor: torch.Tensor) -> bytes:
    return signature_bytes(tensor.contiguous(), 4)


@pytest.mark.requirement("F1")
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.complex64,
        torch.bool,
        torch.uint64,
        torch.float8_e4m3fn,
        torch.float8_e8m0fnu,
    ],
)
def test_every_dtype_is_read_by_its_bytes(read, dtype) -> None:
    tensor = torch.arange(24, dtype=torch.uint8).repeat(16).view(dtype)
    expected = signature(tensor.view(torch.uint8))
    assert read(tensor) == {"t": (str(dtype).removeprefix("torch."), expected, None)}


@pytest.mark.requirement("F1")
def test_views_are_read_in_logical_order(read) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    for view in (base.t(), base[1:3, ::2], torch.tensor(1.0).expand(1000, 1000), base[:0]):
        assert read(view) == {"t": ("float32", signature(view), None)}
    overlapping = torch.as_strided(base, (4, 3), (1, 1))
    assert read(overlapping) == {"t": ("float32", signature(overlapping.clone()), None)}


@pytest.mark.requirement("F1")
def test_conjugate_and_negative_views_are_resolved(read) -> None:
    values = torch.tensor([1 + 2j, -3 - 4j])
    assert read(values.conj())["t"][1] == signature(values.conj().resolve_conj())
    imaginary = values.conj().imag
    assert read(imaginary)["t"][1] == signature(imaginary.resolve_neg())


@pytest.mark.requirement("F1")
def test_sparse_quantised_and_nested_tensors_are_read_by_component(read) -> None:
    dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    assert set(read(dense.to_sparse())) == {"t.indices", "t.values"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        csr = dense.to_sparse_csr()
        quantised = torch.quantize_per_tensor(dense, 0.5, 1, torch.quint8)
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        assert set(read(csr)) == {"t.crow_indices", "t.col_indices", "t.values"}
        assert set(read(quantised)) == {"t", "t.scale", "t.zero_point"}
        assert set(read(nested)) == {"t.0", "t.1", "t.sizes"}
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert {"t._values", "t._offsets"} <= set(read(jagged))
    assert all(note is None for _, _, note in read(jagged).values())


@pytest.mark.requirement("F12")
def test_tensor_without_memory_says_why(read) -> None:
    from torch._subclasses import FakeTensorMode

    assert read(torch.empty(10**6, 10**6, device="meta"))["t"][1:] == (None, "meta tensor")
    with FakeTensorMode():
        fake = torch.ones(3)
    assert read(fake)["t"][1] is None
    freed = torch.ones(8)
    freed.untyped_storage().resize_(0)
    assert read(freed)["t"][1:] == (None, "storage is freed")
    shrunk = torch.ones(8)
    shrunk.untyped_storage().resize_(16)
    assert read(shrunk)["t"][1:] == (None, "storage is freed")


@pytest.mark.requirement("F1")
def test_wrapper_subclass_is_read_by_what_it_wraps(read) -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    a, b = torch.ones(3), torch.zeros(3)
    expected = {"t.a": ("float32", signature(a), None), "t.b": ("float32", signature(b), None)}
    assert read(TwoTensor(a, b)) == expected


def test_subclass_with_memory_of_its_own_is_read_and_keeps_its_type(read) -> None:
    class Tagged(torch.Tensor):
        pass

    tagged = torch.ones(3).as_subclass(Tagged)
    assert read(tagged) == {"t": ("float32", signature(torch.ones(3)), None)}
    assert type(tagged) is Tagged


def test_numpy_arrays_are_read_like_tensors(read) -> None:
    array = numpy.arange(12.0).reshape(3, 4)
    expected = signature(torch.from_numpy(array.copy()))
    assert read(array)["t"] == ("numpy.float64", expected, None)
    reversed_rows = array[::-1]
    expected = signature(torch.from_numpy(reversed_rows.copy()))
    assert read(reversed_rows)["t"] == ("numpy.float64", expected, None)
    assert read(numpy.array([object()], dtype=object))["t"][1] is None
