"""Diagnostic fingerprints of torch tensors, on any device.

CPU memory is read by ``xorsig``, CUDA memory by the kernels of ``opguard-cuda``. Without them, and
on other devices, the tensor operations of :mod:`opguard.core._fallback` give the same values.
"""

from __future__ import annotations

import torch

import xorsig
from opguard.core import _fallback
from opguard.core.cuda import operator
from opguard.core.cuda.kernels import KERNELS

MAX_REGIONS = 64
DEFAULT_REGIONS = 4


def xor_signature(tensor: torch.Tensor) -> int:
    """XOR of all little-endian 32-bit words of a tensor.

    Args:
        tensor: Shape ``[*]``, any dtype with memory, any device.

    Returns:
        An unsigned 32-bit integer; synchronises a device.

    Raises:
        ValueError: The tensor has no memory that could be read.

    Source:
        fingerprint spec F6.
    """
    return int(region_signatures(tensor, 1)[0].item()) & 0xFFFFFFFF


def xor_signature_rows(tensor: torch.Tensor) -> torch.Tensor:
    """XOR of the words of each row of the first dimension.

    Args:
        tensor: Shape ``[rows, *]``, any dtype with memory, any device; a 0-dim tensor is one row.

    Returns:
        ``int64[rows]`` on the tensor's device; each row is padded on its own.

    Raises:
        ValueError: The tensor has no memory that could be read.

    Source:
        fingerprint spec F6.
    """
    dense = _dense(tensor)
    rows = dense.shape[0] if dense.dim() else 1
    if dense.numel() == 0:
        return torch.zeros(rows, dtype=torch.int64, device=dense.device)
    if dense.is_cpu:
        data = dense.contiguous().flatten().view(torch.uint8).numpy()
        return torch.tensor(xorsig.row_xor(data, rows), dtype=torch.int64)
    words = _fallback.words(dense.reshape(rows, -1))
    return _fallback.fold(words).to(torch.int64) & 0xFFFFFFFF


def region_signatures(tensor: torch.Tensor, regions: int = DEFAULT_REGIONS) -> torch.Tensor:
    """Plain fingerprint of a tensor, one value per region of its bytes.

    The order of the elements counts, and not how they lie in memory: a view and its contiguous
    copy have equal values.

    Args:
        tensor: Shape ``[*]``, any dtype with memory, any device.
        regions: 1 to 64.

    Returns:
        ``int32[regions]`` on the tensor's device, the bit pattern of the unsigned values.

    Raises:
        ValueError: ``regions`` is out of range, or the tensor has no memory.

    Source:
        fingerprint spec F2-F5, F14.
    """
    _check_regions(regions)
    if torch.compiler.is_compiling():
        result: torch.Tensor = torch.ops.opguard.region_signatures(tensor, regions)
        return result
    return _region_signatures(tensor, regions)


def _region_signatures(tensor: torch.Tensor, regions: int) -> torch.Tensor:
    dense = _dense(tensor)
    if dense.is_cpu:
        signature = _native(dense, regions)[: 4 * regions]
        return torch.frombuffer(bytearray(signature), dtype=torch.int32)
    if dense.is_cuda and KERNELS.usable(dense.get_device()):
        return KERNELS.signature(dense, regions, mixed=False)
    return _fallback.region_xor(dense, regions)


operator.register(_region_signatures)


def signature_bytes(tensor: torch.Tensor, regions: int) -> bytes:
    """Both schemes of a plain tensor, as records store them.

    Args:
        tensor: A strided tensor without conjugate or negative bit.
        regions: 1 to 64.

    Returns:
        ``8 * regions`` bytes: the XOR of each region, then its mixed value, little-endian. Waits
        for a device.

    Source:
        fingerprint spec F13.
    """
    if tensor.is_cpu:
        return _native(tensor, regions)
    out = torch.empty(2 * regions, dtype=torch.int32, device=tensor.device)
    device_signature(tensor, regions, out)
    return out.cpu().numpy().tobytes()


def device_signature(tensor: torch.Tensor, regions: int, out: torch.Tensor) -> None:
    """Both schemes of a plain tensor, computed and left on its device; does not wait.

    Args:
        tensor: A strided tensor without conjugate or negative bit, not on the CPU.
        regions: 1 to 64.
        out: ``int32[2 * regions]`` on the tensor's device: the XOR of each region, then its mixed
            value.

    Source:
        fingerprint spec F9, F10, F13.
    """
    plain = tensor.detach()
    if plain.is_cuda and KERNELS.usable(plain.get_device()):
        KERNELS.signature(plain, regions, out=out)
        return
    out[:regions] = _fallback.region_xor(plain, regions)
    out[regions:] = _fallback.region_mix(plain, regions)


def _native(tensor: torch.Tensor, regions: int) -> bytes:
    address = tensor.data_ptr() if tensor.numel() else 0
    return xorsig.fingerprint(
        address, tuple(tensor.shape), tensor.stride(), tensor.dtype.itemsize, regions
    )


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type == "meta" or tensor.layout is not torch.strided:
        kind = "meta device" if tensor.device.type == "meta" else str(tensor.layout)
        raise ValueError(f"cannot fingerprint a tensor of {kind} as one piece; pass its components")
    if tensor.numel():
        # A storage can be freed or shrunk under a tensor, as sharding does between uses.
        last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
        needed = (tensor.storage_offset() + last + 1) * tensor.dtype.itemsize
        if tensor.untyped_storage().nbytes() < needed:
            raise ValueError("cannot fingerprint a tensor whose storage is freed")
    with torch.no_grad():
        if tensor.is_quantized:
            tensor = tensor.int_repr()
        return tensor.detach().resolve_conj().resolve_neg()


def _check_regions(regions: int) -> None:
    if not 1 <= regions <= MAX_REGIONS:
        raise ValueError(f"regions must be between 1 and {MAX_REGIONS}, not {regions}")
