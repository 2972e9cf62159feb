from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from opguard.tools.cli import main, split_workload_arguments
from opguard.tools.commands import COMMANDS

PROGRAM = [sys.executable, "-m", "opguard.tools"]
ACTIONS = ("discover", "prepare", "trace", "compare")


def run_program(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, cwd=cwd)


@pytest.mark.requirement("A1")
def test_capabilities_prints_one_json_document() -> None:
    completed = run_program("capabilities")

    document = json.loads(completed.stdout)
    assert (completed.returncode, completed.stderr) == (0, "")
    assert (document["protocol_version"], document["ok"]) == (1, True)
    assert document["result"]["actions"] == ["capabilities", *ACTIONS]


@pytest.mark.requirement("A1")
def test_console_script_is_the_same_program() -> None:
    try:
        metadata.distribution("opguard-tools")
    except metadata.PackageNotFoundError:
        pytest.skip("the distribution is not installed in this environment")
    script = Path(sys.executable).with_name("opguard-tools")

    completed = subprocess.run([str(script), "capabilities"], capture_output=True, text=True)

    assert completed.stdout == run_program("capabilities").stdout


@pytest.mark.requirement("A6")
@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["unknown"],
        ["discover"],
        ["discover", "--request"],
        ["discover", "--req", "x.json"],
        ["discover", "--request", "x.json", "--colour"],
        ["discover", "--request", "x.json", "--", "more"],
        ["capabilities", "more"],
        ["schema", "unknown"],
        ["recover"],
        ["diff"],
    ],
    ids=" ".join,
)
def test_malformed_command_line_is_a_usage_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (2, "")
    assert err.startswith("usage: ")


@pytest.mark.requirement("A6")
@pytest.mark.parametrize("action", ACTIONS)
def test_missing_request_file_is_an_enveloped_error(
    action: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status = main([action, "--request", str(tmp_path / "missing.json")])

    assert status == 1
    assert json.loads(capfd.readouterr().out)["error"]["type"] == "request_unreadable"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_teaches_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])

    assert caught.value.code == 0
    assert "opguard-tools" in capsys.readouterr().out


def test_help_imports_none_of_the_large_dependencies() -> None:
    program = (
        "import sys\nfrom opguard.tools.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "large = {'pydantic', 'polars', 'torch', 'rich', 'jinja2', 'numpy', 'xorsig'}\n"
        "print(sorted(large & set(sys.modules)), file=sys.stderr)\n"
    )

    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert completed.stderr == "[]\n"


def test_capabilities_imports_neither_torch_nor_polars() -> None:
    program = (
        "import sys\nfrom opguard.tools.cli import main\nmain(['capabilities'])\n"
        "print(sorted({'polars', 'torch', 'rich'} & set(sys.modules)), file=sys.stderr)\n"
    )

    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert completed.stderr == "[]\n"


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from opguard.tools import __version__

    with pytest.raises(SystemExit):
        main(["--version"])

    assert capsys.readouterr().out == f"opguard-tools {__version__}\n"


@pytest.mark.requirement("A9")
def test_schema_of_one_action_has_request_result_and_example(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["schema", "discover"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert sorted(document) == ["example_request", "request", "result"]
    assert document["request"]["additionalProperties"] is False
    assert set(document["example_request"]) <= set(document["request"]["properties"])


@pytest.mark.requirement("A9")
def test_schema_of_everything_lists_actions_and_error_types(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["schema"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert list(document["actions"]) == ["capabilities", *ACTIONS]
    assert "script_raised" in document["errors"]


def test_everything_after_two_dashes_belongs_to_the_workload() -> None:
    assert split_workload_arguments(["diff", "--json", "--", "--json", "--", "x"]) == (
        ["diff", "--json"],
        ["--json", "--", "x"],
    )
    assert split_workload_arguments(["diff"]) == (["diff"], None)
    assert split_workload_arguments(["diff", "--"]) == (["diff"], [])


def test_recover_without_a_marker_has_nothing_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".opguard").mkdir()

    assert main(["recover", str(tmp_path)]) == 0

    assert "nothing to recover" in capsys.readouterr().out


def test_recover_of_a_folder_in_which_nothing_ran_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recover", "--json", str(tmp_path)]) == 3

    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["type"] == "recovery_failed"
    assert "name the checkout itself" in captured.err


def test_arguments_of_the_script_without_two_dashes_are_explained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["diff", "--baseline", "a", "--candidate", "b", "--seed", "0"])

    assert caught.value.code == 2
    assert "stand after --" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["diff", "--json", "--nproc", "none"], ["diff", "--json", "--baseline", "a"]],
    ids=["malformed", "incomplete"],
)
def test_usage_error_of_a_command_with_json_is_a_document_too(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert caught.value.code == 2
    assert document["error"]["type"] == "usage"
    assert document["error"]["message"] in captured.err
    assert "usage:" in captured.err


def test_recover_of_a_missing_checkout_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recover", "--json", str(tmp_path / "missing")]) == 3

    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["type"] == "checkout_unusable"
    assert "checkout_unusable" in err


@pytest.mark.requirement("D7")
def test_recover_restores_what_a_killed_operation_left_and_lists_edits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("kept.py", "edited.py"):
        (checkout / name).write_text("x = 1\n")
    program = (
        "import hashlib, os, sys\nfrom pathlib import Path\n"
        "from opguard.tools.transaction import SourceTransaction\n"
        "names = ('kept.py', 'edited.py')\n"
        "digest = hashlib.sha256(b'x = 1\\n').hexdigest()\n"
        "with SourceTransaction(Path('checkout').resolve(), Path('out-instrument').resolve(),\n"
        "    {name: b'x = 2\\n' for name in names}, {name: digest for name in names}, 'trace'):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path)
    (checkout / "edited.py").write_text("x = 3\n")

    first = main(["recover", str(checkout)])
    first_text = capsys.readouterr().out
    (checkout / "edited.py").write_text("x = 1\n")
    second = main(["recover", "--json", str(checkout)])
    second_document = json.loads(capsys.readouterr().out)

    assert (first, second) == (1, 0)
    assert "restored: kept.py" in first_text
    assert "edited, left alone: edited.py" in first_text
    assert second_document["marker_removed"] is True
    assert (checkout / "kept.py").read_text() == "x = 1\n"


def test_program_in_a_folder_with_modules_of_standard_names_still_runs(tmp_path: Path) -> None:
    """``python -m`` puts the folder first; the console script and `diff`'s steps do not."""
    (tmp_path / "argparse.py").write_text("raise RuntimeError('shadowed')\n")

    completed = subprocess.run(
        [sys.executable, "-P", "-m", "opguard.tools", "capabilities"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=dict(os.environ),
    )

    assert completed.returncode == 0
