"""The entry points of a contributor: builds, tests and the demonstration.

Run with `nox -s SESSION`. Every session works from a clean clone on a machine with Python 3.11 or
later, a Rust toolchain (`cargo`) and a C++ compiler (which `torch.compile` uses in some tests).
"""

import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True
nox.options.sessions = ["tests", "lint", "types"]

ROOT = Path(__file__).parent
CRATE = ROOT / "crates" / "xorsig"
TOOLS = ROOT / "packages" / "opguard-tools"
CORE = ROOT / "packages" / "opguard-core"
CUDA = ROOT / "cuda"
PACKAGES = (CRATE, CORE, TOOLS)
RELEASED = {"xorsig": CRATE, "opguard-core": CORE, "opguard-tools": TOOLS, "opguard-cuda": CUDA}
FUZZ = CRATE / "fuzz"
FUZZ_TARGETS = ("batch", "receipt", "materialize")
CARGO_MANIFEST = ("--manifest-path", str(CRATE / "Cargo.toml"))
TEST_PACKAGES = (
    "pytest>=8.4",
    "pytest-xdist>=3.8",
    "hypothesis>=6.130",
    "duckdb>=1.2",
    "numpy>=2.0",
    "attrs>=24.2",
    "perfetto>=0.16",
)
CUDA_TOOLS = (
    # The toolkit pins all its parts; nvidia-cuda-nvcc alone would draw newer ones beside itself.
    "cuda-toolkit[nvcc]==13.0.3.*",
    "nvidia-cuda-cuobjdump==13.2.86",
    "nvidia-cuda-nvdisasm==13.2.86",
    "ziglang>=0.14",
    "auditwheel>=6.4",
    *("pytest>=8.4", "pytest-xdist>=3.8", "numpy>=2.0"),
)
GPU_TOOLS = ("nvidia-cuda-sanitizer-api>=13.0", "numpy>=2.0")
# Most of the tests' time passes in subprocesses with one thread each. A module's tests stay on one
# worker, since they share what its fixtures captured. The slow modules come first, in the order of
# `testpaths`: one that began last would keep one worker busy alone.
IN_PARALLEL = ("--numprocesses", "auto", "--dist", "loadfile", "--no-loadscope-reorder")
BENCH_PEERS = (
    *("numpy>=2.0", "xxhash>=3.5", "blake3>=1.0", "google-crc32c>=1.7"),
    *("orjson>=3.10", "msgspec>=0.19", "perfetto>=0.16", "protobuf>=6", "mindstudio-probe>=26"),
)
LINTER = "ruff==0.17.6"
TYPE_CHECKER = "mypy==2.4.1"
EXAMPLE = ROOT / "examples" / "char_gpt"


def wheel_folder(session: nox.Session) -> Path:
    """The folder of the session's freshly built wheels."""
    return session.cache_dir.resolve() / f"{session.name}-wheels"


def build_wheels(session: nox.Session) -> list[str]:
    """Build the wheel of every distribution into a fresh folder and return their paths."""
    destination = wheel_folder(session)
    shutil.rmtree(destination, ignore_errors=True)
    session.install("build[uv]>=1.2")
    session.log("building the wheels; the first compilation of the Rust code takes minutes")
    for package in PACKAGES:
        session.run(
            *("python", "-m", "build", "--wheel", "--installer", "uv"),
            *("--outdir", str(destination), str(package)),
            silent=True,
        )
    return sorted(str(wheel) for wheel in destination.glob("*.whl"))


def build_cuda_wheel(session: nox.Session) -> list[str]:
    """Build the wheel of the CUDA library and return its path; nvcc comes from PyPI."""
    destination = wheel_folder(session) / "cuda"
    session.run(
        *("python", "-m", "build", "--wheel", "--installer", "uv"),
        *("--outdir", str(destination), str(CUDA)),
        silent=True,
    )
    return [str(wheel) for wheel in destination.glob("*.whl")]


def install_wheels(session: nox.Session, wheels: list[str], *others: str) -> None:
    """Install freshly built wheels, also over an equal version that an earlier run left.

    Modules are compiled once, here: where nothing else does it, as uv and
    ``PYTHONDONTWRITEBYTECODE`` have it, each of hundreds of processes would compile torch again.
    """
    session.env["UV_COMPILE_BYTECODE"] = "1"
    session.install(*wheels, *others)
    session.install("--force-reinstall", "--no-deps", *wheels)


@nox.session
def demo(session: nox.Session) -> None:
    """Find the line at which the example's two trainings part."""
    install_wheels(session, build_wheels(session), "numpy>=2.0")
    workspace = Path(session.create_tmp()).resolve() / "char_gpt"
    shutil.rmtree(workspace, ignore_errors=True)
    shutil.copytree(EXAMPLE, workspace)
    report = workspace / "report"
    session.log("a difference is what this example is about, so exit status 1 is success")
    session.run(
        *("opguard-tools", "diff"),
        *("--baseline", str(workspace / "baseline")),
        *("--candidate", str(workspace / "candidate")),
        *("--output", str(report)),
        *session.posargs,
        success_codes=[1],
    )
    names = ("*.perfetto-trace", "report.html", "summary.json")
    found = sorted(path for name in names for path in report.rglob(name))
    if not found:
        session.error(f"no report file below {report}")
    for path in found:
        session.log(f"report: {path}")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the Python tests against freshly built wheels, then the Rust tests.

    Arguments after `--` go to pytest; with any, tests run one by one, and the Rust tests are left
    out.
    """
    install_wheels(session, build_wheels(session), *TEST_PACKAGES)
    arguments = session.posargs or IN_PARALLEL
    session.run("pytest", *arguments, env={"OPGUARD_WHEELS": str(wheel_folder(session))})
    if not session.posargs:
        session.notify("cargo_tests")


@nox.session(default=False)
def integrations(session: nox.Session) -> None:
    """Run the glue for training loops with the real libraries."""
    libraries = ("transformers>=5.0", "accelerate>=1.1", "lightning>=2.5")
    install_wheels(session, build_wheels(session), *TEST_PACKAGES, *libraries)
    session.run("pytest", "tests/e2e/test_integrations.py", *session.posargs)


@nox.session(default=False, python=["3.12", "3.13"])
def source_forms(session: nox.Session) -> None:
    """Check on other interpreters that instrumented source does what the original does."""
    install_wheels(session, build_wheels(session), *TEST_PACKAGES)
    session.run(
        "pytest",
        *("packages/opguard-tools/tests/source", "tests/e2e/test_source_forms.py"),
        *session.posargs,
    )


@nox.session(default=False)
def libraries(session: nox.Session) -> None:
    """Train with transformers, one line of which was edited, and find that line."""
    install_wheels(
        session, build_wheels(session), *TEST_PACKAGES, "transformers>=5", "accelerate>=1"
    )
    session.run("pytest", "tests/e2e/test_transformers.py", *session.posargs)


@nox.session(default=False)
def cases(session: nox.Session) -> None:
    """Judge every case program that is kept beside the repository, and print a table.

    Arguments after `--` go to the runner: kinds of cases (`pair`, `control`, `stress`), `--only
    TEXT`, `--jobs N`. All of them take about an hour on one core.
    """
    install_wheels(session, build_wheels(session), *TEST_PACKAGES)
    session.run("python", str(ROOT / "tests" / "support" / "opguard_cases.py"), *session.posargs)


@nox.session(default=False, venv_backend="none")
def cargo_tests(session: nox.Session) -> None:
    """Run the Rust tests."""
    # In release mode, since the wheel's build has compiled the dependencies so.
    session.run("cargo", "test", "--release", *CARGO_MANIFEST, *session.posargs, external=True)
    session.run(
        *("cargo", "test", "--release", "--manifest-path", str(FUZZ / "Cargo.toml")),
        *("--target-dir", str(CRATE / "target")),
        external=True,
    )


@nox.session(venv_backend="none")
def rust(session: nox.Session) -> None:
    """Check the Rust crate: formatting, clippy without warnings, tests."""
    session.run("cargo", "fmt", *CARGO_MANIFEST, "--check", external=True)
    for what in (("--all-targets",), ("--lib", "--features", "python")):
        session.run(
            *("cargo", "clippy", *CARGO_MANIFEST, *what, "--", "-D", "warnings"), external=True
        )
    session.notify("cargo_tests")


@nox.session(default=False)
def cuda(session: nox.Session) -> None:
    """Build the CUDA library from PyPI's wheels and check it; needs no device.

    The wheel is built with PyPI's nvcc, its machine code is checked for every target, and the
    emulated kernels run under sanitizers and with defects put in. Arguments after `--` go to
    pytest in place of the test folders.
    """
    # An environment of its own: torch's wheels pin another CUDA toolkit.
    wheels = [*build_wheels(session), *build_cuda_wheel(session)]
    session.install(*CUDA_TOOLS)
    # Without their dependencies: none of these tests needs torch.
    needed = [wheel for wheel in wheels if "opguard_tools" not in wheel]
    session.install("--force-reinstall", "--no-deps", *needed)
    arguments = session.posargs or ("cuda/tests/build", "cuda/tests/campaigns", *IN_PARALLEL[:2])
    session.run("pytest", *arguments, env={"OPGUARD_CUDA_WHEEL": wheels[-1]})


@nox.session(default=False)
def gpu(session: nox.Session) -> None:
    """Check and measure the kernels on this machine's CUDA device; ends with 2 if there is none."""
    install_wheels(session, [*build_wheels(session), *build_cuda_wheel(session)], *GPU_TOOLS)
    figures = ROOT / "bench-results" / "gpu.json"
    check = CUDA / "tests" / "gpu" / "check.py"
    session.run("python", str(check), "--json", str(figures), *session.posargs)


@nox.session(default=False, venv_backend="none")
def fuzz(session: nox.Session) -> None:
    """Search for files on which reading a capture fails; `-- TARGET... [SECONDS]`, 300 each.

    Inputs that reach new code gather in `crates/xorsig/fuzz/found`, failing ones in `artifacts`.
    """
    names = [word for word in session.posargs if not word.isdigit()] or list(FUZZ_TARGETS)
    seconds = next((word for word in session.posargs if word.isdigit()), "300")
    version = session.run("rustc", "-vV", external=True, silent=True)
    host = next(line.split()[1] for line in version.splitlines() if line.startswith("host:"))
    coverage = ("level=4", "inline-8bit-counters", "pc-table", "trace-compares")
    flags = ["-Cpasses=sancov-module", "-Zsanitizer=address", "-Ccodegen-units=1"]
    flags += [f"-Cllvm-args=-sanitizer-coverage-{option}" for option in coverage]
    # The sanitizer is not in the stable language; nothing that is shipped is built like this.
    environment = {"RUSTC_BOOTSTRAP": "1", "RUSTFLAGS": " ".join(flags)}
    for name in names:
        found, artifacts = FUZZ / "found" / name, FUZZ / "artifacts" / name
        for folder in (found, artifacts):
            folder.mkdir(parents=True, exist_ok=True)
        session.run(
            *("cargo", "run", "--manifest-path", str(FUZZ / "Cargo.toml"), "--profile", "search"),
            *("--features", "search", "--target", host, "--bin", name, "--"),
            *(str(found), str(FUZZ / "corpus" / name), f"-artifact_prefix={artifacts}/"),
            *(f"-max_total_time={seconds}", "-rss_limit_mb=2048", "-malloc_limit_mb=512"),
            "-print_final_stats=1",
            env=environment,
            external=True,
        )


@nox.session(default=False)
def kills(session: nox.Session) -> None:
    """Kill a recording process at two hundred random instants, and fill its disk."""
    install_wheels(session, build_wheels(session), *TEST_PACKAGES)
    tests = str(CRATE / "tests" / "python" / "test_killed.py")
    session.run("pytest", tests, *session.posargs, env={"XORSIG_KILLS": "200"})


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting of the Python code; `-- --fix` mends what can be mended."""
    session.install(LINTER)
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", *(() if "--fix" in session.posargs else ("--diff",)))


@nox.session
def types(session: nox.Session) -> None:
    """Check the type hints of the Python packages."""
    wheels = build_wheels(session)
    install_wheels(session, wheels, TYPE_CHECKER, "types-PyYAML", *TEST_PACKAGES)
    for package in (CORE, TOOLS):
        session.run("mypy", str(package / "src"), *session.posargs)
    session.run("python", "-m", "mypy.stubtest", "xorsig")


@nox.session
def docs(session: nox.Session) -> None:
    """Check the documentation's links and commands, and that the generated reference is current.

    `-- --write` writes the generated pages afresh.
    """
    install_wheels(session, build_wheels(session), *TEST_PACKAGES)
    if "--write" in session.posargs:
        session.run("python", str(ROOT / "docs" / "generate_reference.py"))
    else:
        session.run(
            "pytest",
            "tests/docs",
            *session.posargs,
            env={"OPGUARD_WHEELS": str(wheel_folder(session))},
        )


@nox.session
def bench(session: nox.Session) -> None:
    """Measure against named peers; `-- AREA...` selects, `-- --help` lists (docs/benchmarks.md)."""
    install_wheels(session, build_wheels(session), *BENCH_PEERS)
    session.run("python", str(ROOT / "tests" / "benchmarks"), *session.posargs)


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Build the wheel and the source archive of every distribution into `dist/`."""
    destination = ROOT / "dist"
    shutil.rmtree(destination, ignore_errors=True)
    session.install("build[uv]>=1.2")
    for package in (*PACKAGES, CUDA):
        session.run(
            *("python", "-m", "build", "--installer", "uv"),
            *("--outdir", str(destination), str(package)),
            silent=True,
        )
    for path in sorted(destination.iterdir()):
        session.log(f"built {path.relative_to(ROOT)} ({path.stat().st_size} bytes)")


@nox.session(default=False)
def release(session: nox.Session) -> None:
    """Build one distribution for a release; `-- NAME`. Makes no tag and uploads nothing.

    Refuses a changed working tree, another branch than main, a tag that exists, and a changelog
    without the version.
    """
    if len(session.posargs) != 1 or session.posargs[0] not in RELEASED:
        session.error(f"name one distribution after --: {', '.join(RELEASED)}")
    folder = RELEASED[session.posargs[0]]
    session.run("python", str(ROOT / "tests" / "support" / "opguard_release.py"), str(folder))
    session.install("build[uv]>=1.2", "twine>=6")
    destination = ROOT / "dist" / session.posargs[0]
    shutil.rmtree(destination, ignore_errors=True)
    session.run(
        *("python", "-m", "build", "--installer", "uv"),
        *("--outdir", str(destination), str(folder)),
        silent=True,
    )
    session.run("twine", "check", "--strict", *map(str, sorted(destination.iterdir())))
    session.log(f"built {destination.relative_to(ROOT)}; tag and upload are yours (VERSIONING.md)")
