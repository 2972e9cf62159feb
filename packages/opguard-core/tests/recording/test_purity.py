"""Modules that can only read: which they are, and what makes one of them suspect again."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.overrides import TorchFunctionMode

from opguard.core._site import site
from opguard.core.recording.purity import module_facts

IMAGES, ROWS = (
    torch.linspace(-1, 1, 72).reshape(2, 1, 6, 6),
    torch.linspace(-1, 1, 16).reshape(4, 4),
)
LEAVES = (
    (nn.Linear(4, 3), ROWS),
    (nn.LayerNorm(4), ROWS),
    (nn.RMSNorm(4), ROWS),
    (nn.GroupNorm(2, 4), ROWS),
    (nn.Dropout(0.5), ROWS),
    (nn.GELU(), ROWS),
    (nn.PReLU(), ROWS),
    (nn.Hardtanh(), ROWS),
    (nn.LeakyReLU(), ROWS),
    (nn.Embedding(5, 3, padding_idx=0), torch.tensor([0, 1, 4])),
    (nn.EmbeddingBag(5, 3), torch.tensor([[0, 1], [4, 4]])),
    (nn.Conv2d(1, 2, 3), IMAGES),
    (nn.ConvTranspose2d(1, 2, 3), IMAGES),
    (nn.MaxPool2d(2), IMAGES),
    (nn.AdaptiveAvgPool2d(2), IMAGES),
    (nn.Upsample(scale_factor=2), IMAGES),
)


@pytest.mark.parametrize(("module", "given"), LEAVES, ids=lambda item: type(item).__name__)
def test_leaf_module_is_taken_for_one_that_reads_and_it_is(module, given) -> None:
    held = [given, *module.parameters()]
    before = [item.detach().clone() for item in held]

    assert module_facts(module, [given]) is not None
    module(given)

    assert all(torch.equal(item, old) for item, old in zip(held, before, strict=True))


def test_only_dropout_may_draw_random_numbers() -> None:
    random = {type(module).__name__ for module, given in LEAVES if module_facts(module, []).random}
    assert random == {"Dropout"}


class Marked(torch.Tensor):
    pass


def _replaced_forward(module: nn.Module) -> None:
    module.forward = lambda x: x.zero_()


SUSPECTS = {
    "forward hook": lambda module: module.register_forward_hook(lambda *_: None),
    "forward pre-hook": lambda module: module.register_forward_pre_hook(lambda *_: None),
    "backward hook": lambda module: module.register_full_backward_hook(lambda *_: None),
    "backward pre-hook": lambda module: module.register_full_backward_pre_hook(lambda *_: None),
    "own forward": _replaced_forward,
    "submodule": lambda module: module.add_module("lora", nn.Linear(4, 4)),
    "buffer": lambda module: module.register_buffer("calls", torch.zeros(())),
    "parametrisation": parametrizations.weight_norm,
    "compiled": lambda module: module.compile(backend="eager"),
}


@pytest.mark.parametrize("change", SUSPECTS.values(), ids=SUSPECTS)
def test_module_with_other_code_or_state_is_suspect(change) -> None:
    module = nn.Linear(4, 4)
    assert module_facts(module, [ROWS]) is not None

    change(module)

    assert module_facts(module, [ROWS]) is None


def test_subclasses_in_place_modules_and_modules_with_statistics_are_suspect() -> None:
    class Mine(nn.Linear):
        pass

    for module in (
        Mine(4, 4),
        nn.BatchNorm1d(4),
        nn.ReLU(inplace=True),
        nn.Dropout(inplace=True),
        nn.Embedding(5, 3, max_norm=1.0),
        nn.Sequential(nn.Linear(4, 4)),
    ):
        assert module_facts(module, []) is None


def test_argument_or_parameter_of_a_subclass_is_suspect() -> None:
    module = nn.Linear(4, 4)
    assert module_facts(module, [ROWS.as_subclass(Marked)]) is None
    module.weight = nn.Parameter(module.weight.detach().as_subclass(Marked))
    assert module_facts(module, [ROWS]) is None


def test_modes_and_global_hooks_are_suspect() -> None:
    module = nn.Linear(4, 4)

    class Watching(TorchFunctionMode):
        pass

    with Watching():
        assert module_facts(module, [ROWS]) is None
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert module_facts(module, [ROWS]) is None
    finally:
        handle.remove()
    assert module_facts(module, [ROWS]) is not None


def test_write_of_a_hook_is_seen_at_the_module_it_is_on(recorder, writer) -> None:
    module, x = nn.Linear(4, 4), ROWS.clone()
    module.register_forward_hook(lambda _module, arguments, _result: arguments[0].data.zero_())

    site(0, module)(x)

    assert "arg[0]" in writer.slots(1, 1)
