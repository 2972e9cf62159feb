"""Statistics of the fused read on the emulated device."""

import math

import numpy as np
import pytest
import torch
from emulated import noise

from opguard.core.cuda.library import CudaError

# The element numbers of the C ABI.
ELEMENTS = {
    torch.float64: 1,
    torch.float32: 2,
    torch.float16: 3,
    torch.bfloat16: 4,
    torch.float8_e5m2: 5,
    torch.float8_e4m3fn: 6,
}


def every_kind_of_value(dtype: torch.dtype, count: int) -> torch.Tensor:
    """Random bits, so NaN, infinities, subnormal numbers and zeros of both signs are among them."""
    raw = torch.from_numpy(noise(count * dtype.itemsize)[: count * dtype.itemsize].copy())
    tensor = raw.view(dtype)
    if dtype is torch.float64:
        generator = torch.Generator().manual_seed(1)
        tensor = torch.randn(count, dtype=dtype, generator=generator)
        tensor[7], tensor[8], tensor[9] = math.nan, math.inf, -math.inf
    tensor[3], tensor[4] = 0.0, -0.0
    return tensor


def bytes_of(tensor: torch.Tensor, offset: int) -> np.ndarray:
    data = tensor.view(torch.uint8).numpy()
    memory = noise(data.nbytes + offset)
    memory[offset : offset + data.nbytes] = data
    return memory[offset : offset + data.nbytes]


@pytest.mark.parametrize("dtype", ELEMENTS, ids=str)
def test_statistics_are_those_of_torch(small, dtype):
    for count, offset in ((5, 0), (1001, 0), (1001, 8), (9000, 16 - dtype.itemsize)):
        if dtype.itemsize == 4:
            offset = offset // 4 * 4
        if dtype.itemsize == 8:
            offset = offset // 8 * 8
        tensor = every_kind_of_value(dtype, max(count, 10))[:count]
        data = bytes_of(tensor, offset)
        values, got = small.statistics(data, ELEMENTS[dtype])
        assert values == small.values(data, 4)
        wide = tensor.double()
        finite = wide[wide.isfinite()]
        assert (got.elements, got.nans, got.infinities, got.zeros) == (
            *(count, int(wide.isnan().sum()), int(wide.isinf().sum())),
            int((wide == 0).sum()),
        )
        assert (got.minimum, got.maximum, got.absolute_maximum) == (
            *(finite.min().item(), finite.max().item(), finite.abs().max().item()),
        )
        scale = finite.abs().sum().item() / len(finite)
        assert abs(got.mean - math.fsum(finite.tolist()) / len(finite)) <= 1e-13 * scale
        assert got.l2 == pytest.approx(math.sqrt(math.fsum((finite**2).tolist())), rel=1e-13)


def test_statistics_are_equal_bit_by_bit_whatever_the_order_of_threads(small):
    data = bytes_of(every_kind_of_value(torch.bfloat16, 20_000), 2)
    results = []
    for order in range(6):
        small.order(order)
        results.append(bytes(small.statistics(data, ELEMENTS[torch.bfloat16])[1]))
    small.order(0)
    assert len(set(results)) == 1


def test_statistics_of_no_finite_element_say_so(small):
    for tensor in (torch.empty(0), torch.full((9,), math.nan), torch.full((9,), -math.inf)):
        _, got = small.statistics(bytes_of(tensor, 0), ELEMENTS[torch.float32])
        assert (got.minimum, got.maximum, got.absolute_maximum, got.l2) == (
            *(math.inf, -math.inf, 0.0, 0.0),
        )
        assert math.isnan(got.mean)
        assert got.elements == len(tensor)


def test_statistics_refuse_a_tensor_that_does_not_start_at_an_element(small):
    for element, offset in ((1, 4), (2, 2)):
        with pytest.raises(CudaError) as caught:
            small.statistics(noise(64)[offset : offset + 64 - 16], element)
        assert caught.value.code == -3
