"""The worker runs a script as the interpreter would."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = {
    key: value for key, value in os.environ.items() if key not in ("RANK", "SLURM_PROCID")
}


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    path = tmp_path / "request.json"
    path.write_text(json.dumps({"action": "run"}))
    return path


def run(argv: list[str], cwd: Path, **kwargs) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *argv],
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        **kwargs,
    )


def both(script: str, tmp_path: Path, request_file: Path, *args: str):
    (tmp_path / "script.py").write_text(script)
    plain = run(["script.py", *args], tmp_path)
    worked = run(["-m", "opguard.tools.worker", str(request_file), "script.py", *args], tmp_path)
    return plain, worked


SCRIPTS = {
    "arguments and paths": """
import sys, os, __main__
print(sys.argv, sys.path[0] == os.path.dirname(os.path.realpath(__file__)))
print(__name__, __file__, __package__, __spec__, __doc__, type(__loader__).__name__)
print(__main__.__dict__ is globals(), sorted(k for k in globals() if k.startswith('__')))
""",
    "exit status": "import sys; sys.exit(3)",
    "exit text": "import sys; sys.exit('bad news')",
    "exception": "def f(x):\n    return 1 / x\n\n\nprint('before')\nf(0)\n",
    "syntax error": "x = (\n",
    "interrupt": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('not here')\n",
    "os._exit": "import atexit, os\natexit.register(print, 'no')\nos._exit(7)\n",
    "late thread": """
import threading, time
def work():
    time.sleep(0.2)
    import __main__
    print('thread', __main__.VALUE)
threading.Thread(target=work).start()
VALUE = 5
""",
    "exit handler": "import atexit\nX = 1\natexit.register(lambda: print('bye', X))\n",
    "pickled class": """
import pickle
class A:
    pass
print(type(pickle.loads(pickle.dumps(A()))) is A)
""",
    "future annotations stay per file": "def f(x: undefined_name): pass\n",
    "spawned child": """
import multiprocessing as mp
def child(q):
    q.put(__name__)
if __name__ == '__main__':
    context = mp.get_context('spawn')
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    print(queue.get(), process.join(), process.exitcode)
""",
    "encoding cookie": "# -*- coding: latin-1 -*-\nprint(ascii('\\u00e9'))\n",
}


@pytest.mark.requirement("B3")
@pytest.mark.parametrize("name", SCRIPTS)
def test_script_behaves_as_under_the_plain_interpreter(name, tmp_path, request_file) -> None:
    plain, worked = both(SCRIPTS[name], tmp_path, request_file, "--flag", "a b")
    assert (worked.returncode, worked.stdout, worked.stderr) == (
        plain.returncode,
        plain.stdout,
        plain.stderr,
    )


@pytest.mark.requirement("B3")
@pytest.mark.parametrize(
    "source", [b"print(1)  # \xff\n", b"print('\xff')\n", b"\xef\xbb\xbfprint(1)  # \xc3\xa9\n"]
)
def test_stray_bytes_are_refused_as_by_the_interpreter(source, tmp_path, request_file) -> None:
    (tmp_path / "script.py").write_bytes(source)
    plain = run(["script.py"], tmp_path)
    worked = run(["-m", "opguard.tools.worker", str(request_file), "script.py"], tmp_path)
    assert (worked.returncode, worked.stdout) == (plain.returncode, plain.stdout)
    assert ("SyntaxError" in worked.stderr) == ("SyntaxError" in plain.stderr)


@pytest.mark.requirement("B3")
@pytest.mark.parametrize("name", ["json", "platform", "tokenize", "helper"])
def test_module_beside_the_script_is_imported_as_by_the_interpreter(
    name, tmp_path, request_file
) -> None:
    (tmp_path / f"{name}.py").write_text("VALUE = 'the checkout'\n")
    plain, worked = both(f"import {name}\nprint({name}.VALUE)\n", tmp_path, request_file)
    assert (worked.stdout, worked.stderr) == (plain.stdout, plain.stderr)
    assert plain.stdout == "the checkout\n"


@pytest.mark.requirement("B3")
def test_missing_script_is_reported_as_by_the_interpreter(tmp_path, request_file) -> None:
    plain = run(["absent.py"], tmp_path)
    worked = run(["-m", "opguard.tools.worker", str(request_file), "absent.py"], tmp_path)
    assert plain.returncode == worked.returncode == 2
    assert "can't open file" in worked.stderr


@pytest.mark.requirement("B3")
def test_worker_imports_only_the_standard_library_and_core(tmp_path, request_file) -> None:
    script = """
import sys
print(sorted({m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))
print(sorted(m for m in sys.modules if m.startswith('opguard')))
"""
    plain, worked = both(script, tmp_path, request_file)
    ours = set(eval(worked.stdout.splitlines()[0])) - set(eval(plain.stdout.splitlines()[0]))
    assert ours == {"opguard"}
    assert worked.stdout.splitlines()[1] == str(
        ["opguard", "opguard.tools", "opguard.tools._version", "opguard.tools.libraries"]
    )


@pytest.mark.requirement("B3")
def test_recording_worker_leaves_signals_and_modules_alone(tmp_path) -> None:
    script = """
import signal, sys, threading
print([s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_DFL])
print('torch' in sys.modules, [m for m in ('pydantic', 'polars', 'perfetto') if m in sys.modules])
print(threading.active_count())
"""
    (tmp_path / "script.py").write_text(script)
    request = {
        "action": "trace",
        "capture_id": "0" * 32,
        "capture": str(tmp_path / "capture"),
        "local_root": str(tmp_path / "local"),
        "checkout": str(tmp_path),
        "regions": 4,
        "deterministic": False,
        "request": {"workload": {"ranks": [0]}},
    }
    (tmp_path / "request.json").write_text(json.dumps(request))
    worked = run(
        ["-m", "opguard.tools.worker", str(tmp_path / "request.json"), "script.py"], tmp_path
    )
    assert worked.stdout == "[]\nFalse []\n1\n", worked.stderr
    receipts = list((tmp_path / "capture" / "receipts").iterdir())
    assert [path.name for path in receipts] == ["rank-0.receipt"]


@pytest.mark.requirement("B4")
def test_rank_outside_the_expected_set_is_refused_with_a_note(tmp_path) -> None:
    (tmp_path / "script.py").write_text("print('ran')")
    request = {
        "action": "trace",
        "capture_id": "0" * 32,
        "capture": str(tmp_path / "capture"),
        "local_root": str(tmp_path / "local"),
        "checkout": str(tmp_path),
        "regions": 4,
        "deterministic": False,
        "request": {"workload": {"ranks": [1, 2]}},
    }
    (tmp_path / "request.json").write_text(json.dumps(request))
    worked = run(
        ["-m", "opguard.tools.worker", str(tmp_path / "request.json"), "script.py"], tmp_path
    )
    assert (worked.returncode, worked.stdout) == (78, "")
    (note,) = (tmp_path / "capture" / "errors").iterdir()
    assert json.loads(note.read_text())["type"] == "unexpected_rank"


def test_tracebacks_and_getsource_show_the_original_source(tmp_path: Path) -> None:
    pytest.importorskip("opguard.core")
    original = "import inspect\n\n\ndef f():\n    return 1\n\n\nprint(inspect.getsource(f))\n"
    checkout, output = tmp_path / "checkout", tmp_path / "out"
    for folder, text in ((checkout, original.replace("1", "1  # wrapped")), (output, original)):
        place = folder if folder is checkout else folder / "sources"
        place.mkdir(parents=True)
        (place / "script.py").write_text(text)
    (output / "plan.json").write_text(json.dumps({"files": [], "sites": []}))
    workload = {"ranks": [0], "cwd": str(checkout)}
    request = {
        "action": "trace",
        "request": {"workload": workload},
        "deterministic": False,
        "capture": str(output / "capture"),
        "capture_id": "ab" * 16,
        "local_root": str(tmp_path / "local"),
        "regions": 4,
        "checkout": str(checkout),
        "plan": str(output / "plan.json"),
    }
    (tmp_path / "request.json").write_text(json.dumps(request))
    argv = ["-m", "opguard.tools.worker", str(tmp_path / "request.json"), "script.py"]
    done = run(argv, checkout)
    assert (done.returncode, done.stdout) == (0, "def f():\n    return 1\n\n"), done.stderr
