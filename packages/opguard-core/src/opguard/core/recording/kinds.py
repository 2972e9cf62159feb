"""Tensors that are not plain memory: the components that they stand for, or why there are none.

Nothing here runs an operation on the tensor that the workload could notice: no version moves, no
collective is waited for, no functional tensor is synchronised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from opguard.core.recording.attributes import attributes

Parts = list[tuple[str, Any]]
"""``(name, tensor)``; an empty name stands for the tensor itself."""

_PLAIN_KEYS = {
    "CPU",
    "CUDA",
    "ADInplaceOrView",
    "AutogradCPU",
    "AutogradCUDA",
    "AutocastCPU",
    "AutocastCUDA",
}
_RESOLVABLE_KEYS = {"Conjugate", "Negative", "ZeroTensor"}
_CATEGORIES = (
    ("FuncTorch", "functorch"),
    ("Functionalize", "functional tensor"),
    ("Meta", "meta tensor"),
    ("Sparse", "sparse"),
    ("Quantized", "quantized"),
    ("NestedTensor", "nested"),
    ("Mkldnn", "mkldnn"),
)
_SPARSE_PARTS: dict[torch.layout, tuple[tuple[str, Callable[[Any], Any]], ...]] = {
    torch.sparse_coo: (
        ("indices", torch.Tensor._indices),
        ("values", torch.Tensor._values),
    ),
    torch.sparse_csr: (
        ("crow_indices", torch.Tensor.crow_indices),
        ("col_indices", torch.Tensor.col_indices),
        ("values", torch.Tensor.values),
    ),
    torch.sparse_csc: (
        ("ccol_indices", torch.Tensor.ccol_indices),
        ("row_indices", torch.Tensor.row_indices),
        ("values", torch.Tensor.values),
    ),
}
_SPARSE_PARTS[torch.sparse_bsr] = _SPARSE_PARTS[torch.sparse_csr]
_SPARSE_PARTS[torch.sparse_bsc] = _SPARSE_PARTS[torch.sparse_csc]
_PER_TENSOR = (torch.per_tensor_affine, torch.per_tensor_symmetric)


def category_of(keyset: Any) -> str:
    """What a tensor is, from its dispatch keys.

    Args:
        keyset: ``torch._C._dispatch_keys(tensor)``.

    Returns:
        ``plain`` for strided memory, ``resolvable`` where a conjugate, negative or zero bit stands
        for other values than the memory's, a kind that :func:`components_of` knows, or else the
        reason why the tensor cannot be read.
    """
    keys = set(repr(keyset).partition("(")[2].rstrip(")").split(", "))
    if keys <= _PLAIN_KEYS:
        return "plain"
    if keys <= _PLAIN_KEYS | _RESOLVABLE_KEYS:
        return "resolvable"
    for prefix, category in _CATEGORIES:
        if any(key.startswith(prefix) for key in keys):
            return category
    return "no readable memory: " + ", ".join(sorted(keys))


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """A plain tensor of the values that a ``resolvable`` one stands for."""
    if torch._is_zerotensor(tensor):
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return tensor.resolve_conj().resolve_neg().contiguous()


def inner_tensors(tensor: Any) -> tuple[str, Parts] | None:
    """The tensors that a wrapper subclass stands for.

    Returns:
        ``None`` for a subclass with memory of its own; else a reason why nothing can be read
        (empty when something can), and the inner tensors by attribute.
    """
    kind = type(tensor)
    dispatch = getattr(kind, "__torch_dispatch__", None)
    if dispatch is torch.Tensor.__torch_dispatch__:
        return None
    if kind.__name__ == "AsyncCollectiveTensor":
        # Reading would wait for the collective earlier than the program does.
        if not getattr(tensor, "completed", False):
            return "pending collective", []
        return "", [("elem", tensor.elem)]
    local = getattr(tensor, "_local_tensor", None)
    if isinstance(local, torch.Tensor):
        return "", [("local", local)]
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        names, _ = flatten()
        return "", [(name, getattr(tensor, name)) for name in names]
    held = [item for item in attributes(tensor) if isinstance(item[1], torch.Tensor)]
    if held and kind.__name__ != "FakeTensor":
        return "", held
    return f"{kind.__name__} has no memory of its own", []


def components_of(tensor: torch.Tensor, category: str) -> Parts | None:
    """The tensors that make up one of a kind that :func:`category_of` names.

    Returns:
        ``None`` where the category is a reason. Each part may be of any kind itself.
    """
    with torch.no_grad():
        if category == "functorch":
            return _unwrapped(tensor)
        if category == "sparse":
            return [(name, read(tensor)) for name, read in _SPARSE_PARTS[tensor.layout]]
        if category == "quantized":
            return list(_quantised(tensor))
        if category == "nested":
            parts = [(str(index), part) for index, part in enumerate(tensor.unbind())]
            return [*parts, ("sizes", tensor._nested_tensor_size())]
        if category == "mkldnn":
            return [("", tensor.to_dense())]
    return None


def _unwrapped(tensor: torch.Tensor) -> Parts | None:
    """What a tensor inside a ``torch.func`` transform wraps; all samples of a ``vmap`` at once."""
    functorch = torch._C._functorch
    inner = functorch.get_unwrapped(tensor)
    if functorch.is_batchedtensor(tensor):
        return [(f"batched[{functorch.maybe_get_bdim(tensor)}]", inner)]
    return [("", inner)] if inner is not tensor else None


def _quantised(tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    yield "", tensor.int_repr()
    if tensor.qscheme() in _PER_TENSOR:
        yield "scale", torch.tensor(tensor.q_scale(), dtype=torch.float64)
        yield "zero_point", torch.tensor(tensor.q_zero_point())
    else:
        yield "scales", tensor.q_per_channel_scales()
        yield "zero_points", tensor.q_per_channel_zero_points()
