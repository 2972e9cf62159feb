"""The kernels under the sanitizers, and beyond 2^32 words: no report, and right values."""

import campaign
import pytest


@pytest.mark.parametrize("name", campaign.BUILDS)
def test_kernels_run_without_a_report(name, tmp_path):
    program = campaign.build(name, tmp_path)
    for arguments in (*campaign.BUILDS[name].runs, *campaign.BUILDS[name].thorough):
        result = campaign.run(name, program, *arguments)
        assert result.returncode == 0, result.stdout[-4000:]
        assert result.stdout.endswith(" cases\n")
        assert result.stdout.split()[0] != "0"
