"""``diff``: two checkouts in, the first diverging line out."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opguard.tools.commands.exits import EXIT_CLEAN, EXIT_FAILED, EXIT_FINDINGS
from opguard.tools.formats import DIFF_SCHEMA, REPORTS_NAME

if TYPE_CHECKING:
    from opguard.tools.commands.options import CaptureOptions, CheckoutOptions

_USAGE = """\
opguard-tools diff --baseline DIR --candidate DIR [--script train.py]
                          [--baseline-python P] [--candidate-python P]
                          [--launcher CMD] [--nproc N] [--env NAME=VALUE]
                          [--depth auto|call|aten] [--repeat N] [--output DIR]
                          [--local-root DIR] [--timeout 1800] [--json]
                          [-- ARGS ...]
       opguard-tools diff --captures A B [--repeats R1 R2 ...] [--partial]
                          [--output DIR] [--json]"""
_DESCRIPTION = """\
Run the same training in two checkouts and print where they first stop agreeing: operations whose
inputs are equal and whose outputs differ, in execution order, with file and line. What differs
around the program (arguments, variables, versions, threads, flags, the random stream, the data)
is named first.

Each side runs twice, first to see which expressions touch tensors, then to fingerprint the values
that cross them. The second run instruments the source files of the checkout in place and puts them
back, byte for byte, whatever ends the run. Do not edit a checkout meanwhile. After a power cut,
`opguard-tools recover CHECKOUT` restores it.

  opguard-tools diff --baseline old/ --candidate new/ --script train.py -- --seed 0 --steps 20
  opguard-tools diff --baseline old/ --candidate new/ --nproc 2 -- --seed 0
  opguard-tools diff --baseline old/ --candidate new/ --repeat 2 -- --seed 0
  opguard-tools diff --baseline . --candidate . --baseline-python old-env --candidate-python new-env
  opguard-tools diff --captures out/baseline out/candidate --partial

What runs in an installed library is recorded operator by operator, with the library's own file and
line. The libraries of both sides may differ: give each side the Python of its own environment.
opguard-core and opguard-tools must be installed in both.

With --repeat N the baseline is traced N more times. Places at which these equal runs differ are not
repeatable; origins at such places are listed apart, and the first difference is one of the others.

A program that ends without success (an exception, another exit status, a crash) is compared over
what it recorded until then, and the report begins with what ended how.

Exit status: 0 no recorded value differs over the observed callsites (circumstances may), and both
runs ended alike; 1 differences (also if all of them are at places that are not repeatable), or
runs that ended in different ways; 2 usage; 3 an operation failed, ran out of time or was
interrupted. A result is neither a proof of numerical equivalence nor a finding of a root cause.
"""


@dataclass(frozen=True)
class DiffCommand:
    """Compares two checkouts, or two existing captures."""

    help: str = "run two checkouts and print the first diverging line"
    description: str = _DESCRIPTION
    takes_workload_arguments: bool = True

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the options; how they go together is checked by ``options``."""
        parser.usage = _USAGE
        sides = parser.add_argument_group("what is compared")
        sides.add_argument(
            "--baseline", type=Path, metavar="DIR", help="checkout taken as reference"
        )
        sides.add_argument("--candidate", type=Path, metavar="DIR", help="checkout in question")
        sides.add_argument(
            "--captures",
            type=Path,
            nargs=2,
            metavar=("A", "B"),
            help="compare two existing trace outputs, baseline first; runs nothing",
        )
        sides.add_argument(
            "--repeats",
            type=Path,
            nargs="+",
            default=[],
            metavar="R",
            help="with --captures: trace outputs of further runs of the baseline with its plan",
        )
        sides.add_argument(
            "--partial",
            action="store_true",
            help="with --captures: accept incomplete captures and compare their common beginning",
        )
        run = parser.add_argument_group("how it is run")
        run.add_argument(
            "--script", metavar="FILE", help="program, relative to each checkout (train.py)"
        )
        run.add_argument(
            "--launcher",
            metavar="CMD",
            help="program that starts a Python entry point, one quoted argument (this interpreter; "
            "with --nproc its torchrun)",
        )
        for side in ("baseline", "candidate"):
            run.add_argument(
                f"--{side}-python",
                type=Path,
                metavar="P",
                help=f"interpreter or virtual environment of the {side} (this interpreter)",
            )
            run.add_argument(
                f"--{side}-launcher",
                metavar="CMD",
                help=f"launcher of the {side}, instead of --launcher",
            )
            run.add_argument(
                f"--{side}-env",
                action="append",
                default=[],
                metavar="NAME=VALUE",
                help=f"environment variable for the {side} only; can be repeated",
            )
        run.add_argument(
            "--depth",
            choices=("auto", "call", "aten"),
            help="how deep calls are recorded: call (arguments and results), aten (the operators "
            "inside as well), auto (aten where they run in lines of a library)",
        )
        run.add_argument(
            "--nproc", type=_positive_integer, metavar="N", help="number of ranks, all on this node"
        )
        run.add_argument(
            "--env",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="environment variable for the workload; can be repeated",
        )
        run.add_argument(
            "--repeat",
            type=_whole_number,
            default=0,
            metavar="N",
            help="trace the baseline N more times to tell what is not repeatable (0)",
        )
        run.add_argument(
            "--timeout",
            type=_positive_seconds,
            default=1800.0,
            metavar="SECONDS",
            help="time limit of each run (1800)",
        )
        chosen = parser.add_argument_group(
            "what is recorded",
            "A smaller recording costs less and shows less: the report says what it was limited "
            "to.",
        )
        chosen.add_argument(
            "--steps", metavar="N,N-M,…", help="steps to record, such as 0-3,10,20- (all)"
        )
        chosen.add_argument(
            "--phases", metavar="P,…", help="phases out of forward, backward, optimizer (all)"
        )
        chosen.add_argument(
            "--callsites",
            metavar="PATTERN,…",
            help="FILE[:FUNCTION[:CALLEE]] with * and ?, such as 'model.py:Attention.*'; one that "
            "begins with ! takes out (all)",
        )
        chosen.add_argument(
            "--levels", metavar="N", help="how deep recorded calls may be nested, outermost 1 (128)"
        )
        results = parser.add_argument_group("results")
        results.add_argument(
            "--output",
            type=Path,
            metavar="DIR",
            help="directory to make for captures and reports, outside both checkouts "
            "(./opguard-diff-<time>)",
        )
        results.add_argument(
            "--local-root",
            type=Path,
            metavar="DIR",
            help="staging on a local disk (a temporary directory, removed after success)",
        )
        results.add_argument(
            "--json", action="store_true", help="print the result as one JSON document"
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Compare and print; returns the exit status."""
        from opguard.tools.commands.errors import StepFailedError
        from opguard.tools.commands.options import UsageError, parse_options
        from opguard.tools.protocol.envelope import as_opguard_error, reserved_stdout
        from opguard.tools.transaction import Interrupted

        try:
            options = parse_options(arguments)
        except UsageError as error:
            arguments.parser.error(str(error))
        with reserved_stdout() as write:
            try:
                document = _compare(options)
            except StepFailedError as error:
                failure = (error.error_type, f"{error.step}: {error.message}")
            except (Exception, KeyboardInterrupt, Interrupted) as error:
                known = as_opguard_error(error)
                failure = (known.error_type, known.message)
            else:
                write(_render(document, as_json=arguments.json))
                return EXIT_FINDINGS if _differs(document) else EXIT_CLEAN
            kind, message = failure
            print(f"opguard diff failed, {kind}: {message}", file=sys.stderr)
            print(f"What there is so far: {options.output}", file=sys.stderr)
            if arguments.json:
                write(_encode({"schema": DIFF_SCHEMA, "error": {"type": kind, "message": message}}))
            return EXIT_FAILED


def _differs(document: dict[str, Any]) -> bool:
    """Whether there is anything to look at: a value that differs, or an end of another kind."""
    found = any(document[name] for name in ("origins", "inherited", "not_repeatable"))
    return found or not document["endings"]["alike"]


def _compare(options: CheckoutOptions | CaptureOptions) -> dict[str, Any]:
    from opguard.tools.commands.options import CheckoutOptions

    if isinstance(options, CheckoutOptions):
        return _compare_checkouts(options)
    return _compare_captures(options)


def _compare_captures(options: CaptureOptions) -> dict[str, Any]:
    from opguard.tools.actions.comparing import CaptureSource, compare_sources
    from opguard.tools.transaction import interruptible

    with interruptible():
        compared = compare_sources(
            CaptureSource.open(options.baseline, partial=options.partial),
            CaptureSource.open(options.candidate, partial=options.partial),
            output=options.output / REPORTS_NAME,
            repeats=[CaptureSource.open(path, partial=options.partial) for path in options.repeats],
        )
    return _read_document(compared.reports.summary)


def _compare_checkouts(options: CheckoutOptions) -> dict[str, Any]:
    from opguard.tools.commands.display import Display
    from opguard.tools.commands.options import CaptureOptions
    from opguard.tools.commands.steps import StepRunner
    from opguard.tools.commands.workflow import STEPS, Workflow
    from opguard.tools.launch.interruption import Interruption
    from opguard.tools.launch.paths import OperationPaths, make_directories

    display = Display(STEPS + options.repeats)
    display.note(
        "source files of the checkouts are instrumented in place while they are traced, and put "
        f"back; output: {options.output}"
    )
    make_directories(OperationPaths(options.output))
    temporary = options.local_root is None
    local_root = options.local_root or Path(tempfile.mkdtemp(prefix="opguard-")).resolve()
    with Interruption() as interruption:
        steps = StepRunner(options.output / "steps", display, interruption)
        workflow = Workflow(steps, options.output, local_root, options.workload, options.repeats)
        traces = workflow.trace(options.checkouts)
        document = None
        if traces.succeeded:
            document = _read_document(Path(workflow.compare(traces).summary_json))
    if document is None:
        # The protocol's action takes successful traces only.
        display.start("compare what was recorded")
        document = _compare_captures(
            CaptureOptions(
                Path(traces.baseline.output),
                Path(traces.candidate.output),
                partial=True,
                output=options.output,
                repeats=tuple(Path(repeat.output) for repeat in traces.repeats),
            )
        )
        display.finish("done")
    if temporary:
        shutil.rmtree(local_root, ignore_errors=True)
    return document


def _read_document(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document


def _render(document: dict[str, Any], *, as_json: bool) -> bytes:
    if as_json:
        return _encode(document)
    from opguard.tools.report import render_text

    return render_text(document).rstrip("\n").encode("utf-8", "backslashreplace") + b"\n"


def _encode(document: dict[str, Any]) -> bytes:
    return json.dumps(document, allow_nan=False).encode("ascii") + b"\n"


def _positive_integer(text: str) -> int:
    """A whole number of at least 1; argparse takes its error's text from this function's name."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return value


def _whole_number(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 0")
    return value


def _positive_seconds(text: str) -> float:
    value = float(text)
    # The upper end keeps out infinity and NaN too: a year is no time limit.
    if not 0 < value < 31_536_000:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value
