import pytest

from opguard.core.environment import Rank, identify_rank, regions_from_environment


@pytest.mark.requirement("B4")
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Rank(0, 1, "default")),
        ({"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "1"}, Rank(3, 8, "RANK")),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4"}, Rank(2, 4, "SLURM_PROCID")),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, Rank(0, 1, "default")),
        ({"SLURM_PROCID": "0"}, Rank(0, 1, "default")),
        (
            {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
            Rank(1, 2, "OMPI_COMM_WORLD_RANK"),
        ),
        ({"PMI_RANK": "5", "PMI_SIZE": "6"}, Rank(5, 6, "PMI_RANK")),
    ],
)
def test_rank_comes_from_the_first_launcher_variable(environment, expected) -> None:
    assert identify_rank(environment) == expected


@pytest.mark.requirement("B4")
def test_rank_that_is_not_a_number_is_refused_with_its_variable() -> None:
    with pytest.raises(ValueError, match="RANK='one'"):
        identify_rank({"RANK": "one"})


@pytest.mark.requirement("F5")
@pytest.mark.parametrize(("text", "regions"), [(None, 4), ("0", 1), ("1", 1), ("4", 4), ("64", 64)])
def test_regions_come_from_the_environment(text, regions) -> None:
    environment = {} if text is None else {"OPGUARD_XOR_REGIONAL": text}
    assert regions_from_environment(environment) == regions


@pytest.mark.requirement("F5")
@pytest.mark.parametrize("text", ["65", "-1", "four", "", "4.0", "٤"])
def test_bad_region_count_is_an_error_that_names_the_variable(text: str) -> None:
    with pytest.raises(ValueError, match="OPGUARD_XOR_REGIONAL"):
        regions_from_environment({"OPGUARD_XOR_REGIONAL": text})
