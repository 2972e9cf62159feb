import subprocess
import sys


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_package_loads_neither_torch_nor_cuda() -> None:
    code = (
        "import opguard.core, opguard.core._site, opguard.core.session, sys;"
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'triton', 'nvidia')])"
    )
    assert run(code) == "[]"


def test_site_module_imports_only_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import opguard.core._site;"
        "new = {m.split('.')[0] for m in set(sys.modules) - before};"
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    assert run(code) == "['opguard']"


def test_callback_runs_right_after_torch_is_imported_and_leaves_no_trace() -> None:
    code = (
        "import sys; from opguard.core import _torch_import\n"
        "seen = []\n"
        "_torch_import.when_torch_is_imported(lambda: seen.append(hasattr(sys.modules['torch'], "
        "'Tensor')))\n"
        "import torch\n"
        "finders = [f for f in sys.meta_path if type(f).__module__.startswith('opguard')]\n"
        "print(seen, finders, type(torch.__spec__.loader).__name__, "
        "type(torch.__loader__).__name__)"
    )
    assert run(code) == "[True] [] SourceFileLoader SourceFileLoader"
