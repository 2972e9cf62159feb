"""Command line of the benchmarks; ``nox -s bench -- ARGUMENTS`` calls it."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.machine import REPOSITORY, description
from harness.model import Settings
from harness.report import print_area, write_results
from harness.run import area_names, run_area
from rich.console import Console


def main() -> int:
    """Measure the named areas, or all; the status is 0 even where a target is missed."""
    parser = argparse.ArgumentParser(prog="nox -s bench --", description=__doc__)
    names = area_names()
    parser.add_argument("areas", nargs="*", metavar="AREA", help=f"any of: {', '.join(names)}")
    parser.add_argument("--rounds", type=int, default=Settings.rounds)
    parser.add_argument("--sample-seconds", type=float, default=Settings.sample_seconds)
    parser.add_argument("--output", type=Path, default=REPOSITORY / "bench-results")
    parser.add_argument("--smoke", action="store_true", help="only show that the areas run")
    options = parser.parse_args()
    unknown = sorted(set(options.areas) - set(names))
    if unknown:
        parser.error(f"no such area: {', '.join(unknown)}; there are: {', '.join(names)}")
    settings = Settings(options.rounds, options.sample_seconds)
    if options.smoke:
        settings = Settings(rounds=1, sample_seconds=0.0, smoke=True)
    machine = description()
    console = Console(width=120)
    results = []
    for name in options.areas or names:
        result = run_area(name, settings)
        print_area(console, result)
        results.append(result)
        # After each area, so that an interrupted run leaves what it has.
        write_results(options.output, machine, results)
    missed = sum(result.missed() for result in results)
    console.print(f"{missed} targets missed; results in {options.output}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
