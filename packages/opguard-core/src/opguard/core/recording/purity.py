"""Which callees can only read their arguments.

A call of such a function cannot change its inputs, a known parameter or a gradient, whatever it is
given, so neither is read again after it. This is a fact about the callee: a tensor's version
counter says nothing, since ``.data``, numpy and fused optimizers write past it.

- Functions and methods that torch generates from operator schemas: no overload writes to a tensor
  but ``out=``, and none updates running statistics, which schemas do not mark.
- Functions that torch writes in Python: the list below, read one by one.
- Python's operators on tensors and plain values.
- Modules of torch without submodules or running statistics, as long as nothing is hooked to them.
"""

from __future__ import annotations

import inspect
import itertools
import operator  # noqa: F401, loads the module of C functions below
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from opguard.core.recording.callees import FRESH_MEMORY

_UNLIMITED = 1 << 20
_NONE: frozenset[str] = frozenset()

WRITING_PARAMETERS = frozenset({"inplace", "max_norm", "out"})
"""Parameters that make a function write to an argument."""

_UNMARKED_WRITES = frozenset({"running_mean", "running_var", "noise"})
"""Arguments that operators write to although their schemas do not say so."""

_RANDOM_NAMES = (
    *("rand", "drop", "normal", "bernoulli", "multinomial", "poisson", "gamma", "dirichlet"),
    *("binomial", "attention", "lstm", "gru", "rnn", "rrelu", "fractional_max_pool", "gumbel"),
)
"""Parts of the names of operators that draw random numbers without a generator argument."""

_CONVERSIONS = frozenset(
    {"bfloat16", "bool", "byte", "cdouble", "cfloat", "char", "double", "float", "half", "int"}
    | {"long", "ndimension", "nelement", "short"}
)
"""Tensor methods without a schema of their own."""

_OPERATORS = frozenset(
    {"abs", "add", "and_", "eq", "floordiv", "ge", "getitem", "gt", "invert", "le", "lshift", "lt"}
    | {"matmul", "mod", "mul", "ne", "neg", "not_", "or_", "pos", "pow", "rshift", "sub"}
    | {"truediv", "xor"}
)

_FUNCTIONAL = frozenset(
    {"adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d"}
    | {"adaptive_max_pool3d", "affine_grid", "alpha_dropout", "binary_cross_entropy"}
    | {"binary_cross_entropy_with_logits", "celu", "cosine_embedding_loss", "cross_entropy"}
    | {"ctc_loss", "dropout", "dropout1d", "dropout2d", "dropout3d", "elu", "embedding"}
    | {"embedding_bag", "feature_alpha_dropout", "fold", "gaussian_nll_loss", "glu", "grid_sample"}
    | {"group_norm", "gumbel_softmax", "hardsigmoid", "hardswish", "hardtanh"}
    | {"hinge_embedding_loss", "huber_loss", "interpolate", "kl_div", "l1_loss", "layer_norm"}
    | {"leaky_relu", "local_response_norm", "log_softmax", "lp_pool1d", "lp_pool2d", "lp_pool3d"}
    | {"margin_ranking_loss", "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d"}
    | {"max_unpool2d", "max_unpool3d", "mish", "mse_loss", "multi_margin_loss"}
    | {"multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "normalize", "pad"}
    | {"poisson_nll_loss", "relu", "relu6", "rms_norm", "rrelu", "selu", "sigmoid", "silu"}
    | {"smooth_l1_loss", "soft_margin_loss", "softmax", "softmin", "softsign", "tanh"}
    | {"tanhshrink", "threshold", "triplet_margin_loss", "unfold"}
)
_TORCH_FUNCTIONAL = frozenset(
    {"atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_tensors", "cartesian_prod"}
    | {"cdist", "einsum", "istft", "meshgrid", "norm", "split", "stft", "tensordot", "unique"}
    | {"unique_consecutive"}
)
_TENSOR_METHODS = frozenset(
    {"__pow__", "__rpow__", "__rsub__", "istft", "norm", "split", "stft", "unflatten", "unique"}
    | {"unique_consecutive"}
)


_MODULES = (
    *("Linear", "Bilinear", "Identity", "Embedding", "EmbeddingBag", "Flatten", "Unflatten"),
    *("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
    *("LayerNorm", "GroupNorm", "RMSNorm", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d"),
    *("ReLU", "ReLU6", "GELU", "SiLU", "Mish", "ELU", "SELU", "CELU", "LeakyReLU", "PReLU"),
    *("Sigmoid", "LogSigmoid", "Tanh", "Softmax", "LogSoftmax", "Softplus", "Softsign", "GLU"),
    *("Hardswish", "Hardsigmoid", "Hardtanh", "MaxPool1d", "MaxPool2d", "MaxPool3d"),
    *("AvgPool1d", "AvgPool2d", "AvgPool3d", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d"),
    *("AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d"),
    *("CrossEntropyLoss", "NLLLoss", "MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss"),
    *("BCELoss", "BCEWithLogitsLoss", "KLDivLoss", "CosineSimilarity", "Upsample"),
)
"""Modules whose ``forward`` only reads its arguments and the module's parameters."""

_MUST_BE_EMPTY = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_modules", "_buffers"),
)
"""Attributes of modules for other people's code, and for what a call may change."""

_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)

_OPERATOR_MODULE = sys.modules["_operator"]


class Facts(NamedTuple):
    """What is known about a callee that can only read its arguments.

    Attributes:
        name: Its name.
        random: Whether it may move torch's random generators.
        max_arguments: Positional arguments that it may get without writing to one.
        refused: Keyword arguments that make it write.
    """

    name: str
    random: bool
    max_arguments: int
    refused: frozenset[str]


def facts(callee: Any) -> Facts | None:
    """Facts about ``callee``, or ``None`` where it may write to its arguments.

    Args:
        callee: A builtin function or method, a method descriptor or a Python function.
    """
    kind = type(callee)
    if kind is types.FunctionType:
        return _PYTHON.get(callee)
    if kind is types.BuiltinFunctionType:
        owner = callee.__self__
        if owner is _OPERATOR_MODULE:
            name = callee.__name__
            return Facts(name, False, _UNLIMITED, _NONE) if name in _OPERATORS else None
        name = callee.__name__
        known = (
            type(owner) in _PLAIN_TENSORS
            or (type(owner) is types.ModuleType and owner in _NATIVE_MODULES)
            or (owner is None and getattr(torch._C._VariableFunctions, name, None) is callee)
        )
        return _of_schemas(name) if known else None
    if kind is types.MethodDescriptorType and callee.__objclass__ is torch._C.TensorBase:
        return _of_schemas(callee.__name__)
    return None


def module_facts(module: torch.nn.Module, arguments: Iterable[Any]) -> Facts | None:
    """Facts about a call of ``module``, or ``None`` where it may run other code than torch's own.

    A fact about the module as it is now: hooks, replaced methods and ``inplace`` may come later.

    Args:
        module: The callee.
        arguments: The tensors that it is given: those of a subclass bring code of their own.
    """
    known = _LEAVES.get(type(module))
    if known is None or _has_any_global_hook() or torch.nn.Module.__call__ is not _CALL:
        return None
    forward, facts_of_class = known
    state = module.__dict__
    replaced = type(module).forward is not forward or "forward" in state
    if replaced or state.get("_compiled_call_impl") is not None:
        return None
    writes = state.get("inplace") or state.get("max_norm") is not None
    if writes or any(state.get(name) for name in _MUST_BE_EMPTY):
        return None
    tensors = itertools.chain(arguments, state["_parameters"].values())
    if any(item is not None and type(item) not in _PLAIN_TENSORS for item in tensors):
        return None
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        return None
    return facts_of_class


def _of_schemas(name: str) -> Facts | None:
    if name in FRESH_MEMORY:
        return None
    if name in _CONVERSIONS:
        return Facts(name, False, _UNLIMITED, WRITING_PARAMETERS)
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    if not schemas:
        return None
    random = any(part in name for part in _RANDOM_NAMES)
    for schema in schemas:
        for argument in schema.arguments:
            if argument.name in _UNMARKED_WRITES:
                return None
            random |= "Generator" in str(argument.type)
            alias = argument.alias_info
            if alias is not None and alias.is_write and not _is_out(argument):
                return None
    return Facts(name, random, _UNLIMITED, WRITING_PARAMETERS)


def _is_out(argument: Any) -> bool:
    """Whether a written argument is ``out=``, or a list of a script and no tensor."""
    return argument.is_out or argument.kwarg_only or "Tensor" not in str(argument.type)


def _of_function(function: Callable[..., Any]) -> Facts:
    limit = _UNLIMITED
    for position, name in enumerate(inspect.signature(function, follow_wrapped=False).parameters):
        if name in WRITING_PARAMETERS:
            limit = min(limit, position)
    name = function.__name__
    random = any(part in name for part in _RANDOM_NAMES)
    return Facts(name, random, limit, WRITING_PARAMETERS)


def _python_functions() -> dict[Any, Facts]:
    found: dict[Any, Facts] = {}
    for owner, names in (
        (torch.nn.functional, _FUNCTIONAL),
        (torch.functional, _TORCH_FUNCTIONAL),
        (torch.Tensor, _TENSOR_METHODS),
    ):
        for name in names:
            function = getattr(owner, name, None)
            if type(function) is types.FunctionType:
                known = _of_function(function)
                if owner is torch.Tensor and known.max_arguments != _UNLIMITED:
                    # The tensor itself is the first parameter.
                    known = known._replace(max_arguments=known.max_arguments - 1)
                found[function] = known
    return found


_NATIVE_MODULES = frozenset(
    sys.modules[f"torch._C.{name}"] for name in ("_nn", "_linalg", "_fft", "_special")
)
_PYTHON = _python_functions()


def _leaves() -> dict[type, tuple[Callable[..., Any], Facts]]:
    found: dict[type, tuple[Callable[..., Any], Facts]] = {}
    for name in _MODULES:
        kind: Any = getattr(torch.nn, name, None)
        forward = getattr(kind, "forward", None)
        # One that was replaced before this module was imported comes from elsewhere.
        if forward is not None and forward.__module__.startswith("torch.nn."):
            found[kind] = (forward, Facts(name, name.startswith("Dropout"), _UNLIMITED, _NONE))
    return found


_CALL = torch.nn.Module.__call__
_has_any_global_hook: Callable[[], bool] = torch.nn.modules.module._has_any_global_hook
_LEAVES = _leaves()
