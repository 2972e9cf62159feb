"""Every defect of the list, put into the kernels, is noticed by the build that shall notice it."""

import shutil
import tomllib
from pathlib import Path

import campaign
import opguard_cuda_build
import pytest

MUTANTS = tomllib.loads(Path(__file__).with_name("mutants.toml").read_text())
CASES = [(name, build) for name, mutant in MUTANTS.items() for build in mutant["by"]]


@pytest.mark.parametrize(("name", "build"), CASES, ids=[f"{n}-{b}" for n, b in CASES])
def test_defect_is_noticed(name, build, tmp_path):
    mutant = MUTANTS[name]
    sources = tmp_path / "csrc"
    shutil.copytree(opguard_cuda_build.SOURCES, sources)
    changed = sources / mutant["file"]
    text = changed.read_text()
    assert text.count(mutant["old"]) == 1, "the list is out of date"
    changed.write_text(text.replace(mutant["old"], mutant["new"]))
    program = campaign.build(build, tmp_path, sources)
    results = [campaign.run(build, program, *run) for run in campaign.BUILDS[build].runs]
    assert any(result.returncode != 0 for result in results)
