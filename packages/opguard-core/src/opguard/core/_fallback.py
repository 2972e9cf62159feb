"""The fingerprint schemes as tensor operations: slower, the same values, any device."""

from __future__ import annotations

import torch

_GOLDEN = 0x9E3779B1
_INDEX_HIGH = 0x85EBCA77
_MULTIPLY_1 = 0x7FEB352D
_MULTIPLY_2 = 0x846CA68B
_MASK = 0xFFFFFFFF


def words(rows: torch.Tensor) -> torch.Tensor:
    """Little-endian 32-bit words of each row, the last one padded with zero bytes.

    Args:
        rows: Shape ``[n, m]``, any strided dtype.

    Returns:
        ``int32[n, ceil(m * itemsize / 4)]``.
    """
    if rows.numel() == 0:
        return rows.new_zeros((rows.shape[0], 0), dtype=torch.int32)
    data = rows.contiguous().view(torch.uint8)
    missing = -data.shape[1] % 4
    if missing:
        data = torch.nn.functional.pad(data, (0, missing))
    return data.contiguous().view(torch.int32)


def fold(values: torch.Tensor) -> torch.Tensor:
    """XOR along the last dimension by halving, since torch has no XOR reduction.

    Args:
        values: ``int32[n, m]`` or ``int64[n, m]``.

    Returns:
        ``[n]`` of the same dtype; zeros where ``m`` is 0.
    """
    width = values.shape[-1]
    if width == 0:
        return values.new_zeros(values.shape[:-1])
    while width > 1:
        half = width // 2
        folded = values[..., :half] ^ values[..., half : 2 * half]
        if width % 2:
            folded = torch.cat([folded, values[..., -1:]], dim=-1)
        values, width = folded, half + width % 2
    return values[..., 0]


def region_xor(tensor: torch.Tensor, regions: int) -> torch.Tensor:
    """Plain scheme.

    Args:
        tensor: A strided tensor without conjugate or negative bit.
        regions: 1 to 64.

    Returns:
        ``int32[regions]`` on the tensor's device.
    """
    flat = words(tensor.reshape(1, -1))[0]
    return torch.stack([fold(part) for part in _split(flat, regions)])


def region_mix(tensor: torch.Tensor, regions: int) -> torch.Tensor:
    """Mixed scheme; arguments and result as for :func:`region_xor`.

    Products are taken in int64, whose low 32 bits are exact under two's complement wrap-around.
    """
    flat = words(tensor.reshape(1, -1))[0].to(torch.int64) & _MASK
    index = torch.arange(flat.numel(), dtype=torch.int64, device=flat.device)
    key = ((index & _MASK) * _GOLDEN + (index >> 32) * _INDEX_HIGH) & _MASK
    mixed = flat ^ key
    mixed = ((mixed ^ (mixed >> 15)) * _MULTIPLY_1) & _MASK
    mixed = ((mixed ^ (mixed >> 15)) * _MULTIPLY_2) & _MASK
    mixed = ((mixed ^ (mixed >> 15)) + key) & _MASK
    folded = torch.stack([fold(part) for part in _split(mixed, regions)])
    # Map the unsigned value to the int32 of the same bits.
    return (folded - ((folded >> 31) << 32)).to(torch.int32)


def _split(flat: torch.Tensor, regions: int) -> list[torch.Tensor]:
    base, longer = divmod(flat.numel(), regions)
    return list(torch.split(flat, [base + 1] * longer + [base] * (regions - longer)))
