from __future__ import annotations

import pytest

from opguard.tools.launch.settings import CaptureSettings, capture_settings, parse_regions
from opguard.tools.protocol.errors import InvalidSettingError


@pytest.mark.requirement("F5")
@pytest.mark.parametrize(
    ("value", "regions"), [(None, 4), ("0", 1), ("1", 1), ("4", 4), ("64", 64), ("007", 7)]
)
def test_regions_are_read_from_the_variable(value: str | None, regions: int) -> None:
    assert parse_regions(value) == regions


@pytest.mark.requirement("F5")
@pytest.mark.parametrize("value", ["", "65", "-1", "4.0", " 4", "four", "1e1", "٤", "9999"])
def test_regions_out_of_range_name_the_variable(value: str) -> None:
    with pytest.raises(InvalidSettingError) as caught:
        parse_regions(value)

    assert caught.value.details == {"variable": "OPGUARD_XOR_REGIONAL", "value": value}
    assert "OPGUARD_XOR_REGIONAL" in caught.value.message


@pytest.mark.requirement("F5")
def test_workload_variable_wins_over_the_inherited_one() -> None:
    settings = capture_settings({"OPGUARD_XOR_REGIONAL": "8"}, {"OPGUARD_XOR_REGIONAL": "2"})

    assert settings == CaptureSettings(regions=8, deterministic=False)


@pytest.mark.requirement("B10")
def test_inherited_determinism_variable_does_not_count() -> None:
    inherited = {"OPGUARD_DETERMINISTIC": "1"}

    assert capture_settings({}, inherited).deterministic is False
    assert capture_settings({"OPGUARD_DETERMINISTIC": "1"}, {}).deterministic is True
    assert capture_settings({"OPGUARD_DETERMINISTIC": "0"}, inherited).deterministic is False


@pytest.mark.parametrize(
    "variable",
    ["OPGUARD_DETERMINISTIC", "OPGUARD_CALLSITE_CUPTI", "OPGUARD_CALLSITE_CUDAAPI"],
)
def test_unclear_value_of_a_switch_is_refused(variable: str) -> None:
    with pytest.raises(InvalidSettingError) as caught:
        capture_settings({variable: "true"}, {})

    assert caught.value.details == {"variable": variable, "value": "true"}
