"""The determinism policy sets what the protocol names, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from opguard.core import determinism
from opguard.core.device_activity import device_activity


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    cudnn = torch.backends.cudnn
    before = torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark
    yield
    torch.use_deterministic_algorithms(before[0])
    cudnn.deterministic, cudnn.benchmark = before[1:]
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


@pytest.mark.requirement("B10")
def test_policy_sets_and_states_each_setting_and_seeds_and_fills_nothing() -> None:
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(5)
    stream, empty = torch.get_rng_state(), torch.empty
    fill = torch.utils.deterministic.fill_uninitialized_memory
    determinism.prepare_environment()
    determinism.apply()
    assert determinism.settings() == {
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "use_deterministic_algorithms": True,
        "cudnn.deterministic": True,
        "cudnn.benchmark": False,
        "fill_uninitialized_memory": fill,
    }
    assert torch.equal(torch.get_rng_state(), stream)
    assert torch.empty is empty
    assert torch.utils.deterministic.fill_uninitialized_memory is fill


@pytest.mark.requirement("B10")
def test_settings_without_the_policy_are_those_of_the_program() -> None:
    assert determinism.settings()["CUBLAS_WORKSPACE_CONFIG"] is None
    assert determinism.settings()["use_deterministic_algorithms"] is False


@pytest.mark.requirement("B10")
def test_workspace_that_the_workload_chose_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    determinism.prepare_environment()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def test_device_activity_is_off_or_unavailable() -> None:
    stated = device_activity({"OPGUARD_CALLSITE_CUPTI": "0"})
    assert stated["OPGUARD_CALLSITE_CUPTI"] == "off"
    assert stated["OPGUARD_CALLSITE_CUDAAPI"].startswith("unavailable: ")
    assert not torch.cuda.is_initialized()
