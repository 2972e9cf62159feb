"""Two trace outputs in, reports and the document of differences out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opguard.tools.actions.rank_endings import RunEnd, first_failure
from opguard.tools.actions.tables import materialize_capture
from opguard.tools.compare import (
    CaptureReadError,
    CaptureView,
    Comparison,
    compare_captures,
    compare_with_repeats,
    name_silent_statements,
)
from opguard.tools.formats import CAPTURE_NAME, EMBEDDED_NAME, REQUEST_NAME, RESULT_NAME
from opguard.tools.launch.judge import check_files
from opguard.tools.launch.paths import OperationPaths, make_directories
from opguard.tools.launch.receipts import Evidence, read_evidence
from opguard.tools.protocol.errors import ArtifactMismatchError
from opguard.tools.protocol.models import TraceResult
from opguard.tools.protocol.reading import read_json_object, validate
from opguard.tools.report import Reports, write_reports
from opguard.tools.source.align import align_sources


@dataclass(frozen=True)
class CaptureSource:
    """One side of a comparison: where its capture lies and how far it can be trusted.

    Attributes:
        output: Output directory of the trace.
        capture: Directory of the published batches.
        capture_id: Identity of the capture.
        ranks: Ranks that the capture should have.
        evidence: What the ranks left, for a capture that may be incomplete; None for a capture
            that is known to be complete.
        end: What else is known about the end of such a run.
    """

    output: Path
    capture: Path
    capture_id: str
    ranks: list[int]
    evidence: Evidence | None = None
    end: RunEnd | None = None

    @classmethod
    def of_result(cls, result: TraceResult) -> CaptureSource:
        """The capture of a successful trace."""
        return cls(Path(result.output), Path(result.capture), result.capture_id, list(result.ranks))

    @classmethod
    def open(cls, output: Path, *, partial: bool) -> CaptureSource:
        """The capture in a trace's output directory.

        Args:
            output: The directory.
            partial: Accept a trace that failed.

        Raises:
            ArtifactMismatchError: The trace did not succeed, and ``partial`` is off; or the
                directory is of another version.
            RequestUnreadableError: A file of the directory is damaged.
        """
        embedded = (output / EMBEDDED_NAME).is_file()
        if partial or embedded:
            path = output / (EMBEDDED_NAME if embedded else REQUEST_NAME)
            identity, capture_id, ranks = _read_identity(path)
            capture = output / CAPTURE_NAME
            evidence = read_evidence(capture, capture_id, lenient=partial)
            end = RunEnd.read(output, identity, ranks)
            if not partial:
                _check_complete(evidence, capture, capture_id, end)
                return cls(output, capture, capture_id, ranks)
            return cls(output, capture, capture_id, ranks, evidence, end)
        path = output / RESULT_NAME
        if not path.is_file():
            raise ArtifactMismatchError(
                f"{output} holds no {RESULT_NAME}: the trace failed or is still running. Add "
                "--partial to compare what it captured",
                path=path,
            )
        result = validate(read_json_object(path), TraceResult, source=str(path))
        # The directory may have been moved or copied since.
        return cls(output, output / CAPTURE_NAME, result.capture_id, list(result.ranks))

    def available_ranks(self) -> list[int]:
        """Ranks with data: all of a complete capture, those that started of another."""
        return self.ranks if self.evidence is None else self.evidence.started

    def open_view(self, ranks: list[int], tables: Path) -> CaptureView:
        """Materialise some ranks and open them for comparison.

        Raises:
            BatchCorruptError: A batch of a capture that should be complete is damaged.
            CaptureReadError: Plan, sources or tables cannot be read.
        """
        made = materialize_capture(
            self.capture, self.capture_id, ranks, tables, partial=self.evidence is not None
        )
        if self.evidence is None or self.end is None:
            return CaptureView.open(self.output, tables)
        endings = self.end.endings(self.evidence, self.capture, made.incomplete)
        return CaptureView.open(self.output, tables, endings)


def _read_identity(path: Path) -> tuple[dict[str, Any], str, list[int]]:
    """A file that identifies a capture, with the capture id and the ranks that it names.

    It is an embedded session's own, or the request that the ranks of a run were started with.
    """
    data = read_json_object(path)
    try:
        ranks = data["request"]["workload"]["ranks"] if "request" in data else data["ranks"]
        return data, str(data["capture_id"]), [int(rank) for rank in ranks]
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactMismatchError(
            f"{path} is not a file of this version ({error!r}); name the output directory of a "
            "trace",
            path=path,
        ) from error


def _check_complete(evidence: Evidence, capture: Path, capture_id: str, end: RunEnd) -> None:
    """Hold an embedded session's capture to what a trace is held to before it succeeds."""
    failed = first_failure(end.endings(evidence, capture, {}).values())
    if failed is not None:
        raise ArtifactMismatchError(
            f"rank {failed.rank} of {capture}: {failed.reason()}. Add --partial to compare what "
            "it captured",
            path=capture,
        )
    check_files(evidence, capture, capture_id)


@dataclass(frozen=True)
class Compared:
    """A finished comparison.

    Attributes:
        comparison: Pairs, relations and origins.
        reports: The files written; the summary is the document that ``diff --json`` prints.
    """

    comparison: Comparison
    reports: Reports


def compare_sources(
    baseline: CaptureSource,
    candidate: CaptureSource,
    *,
    output: Path,
    ranks: list[int] | None = None,
    repeats: Sequence[CaptureSource] = (),
) -> Compared:
    """Materialise both sides, compare them, write the reports.

    Args:
        baseline: The side taken as reference.
        candidate: The side in question.
        output: Directory to make.
        ranks: Ranks to compare; by default those that all captures have.
        repeats: Further runs of the baseline, which show what is not repeatable.

    Raises:
        CaptureReadError: A rank is missing in a capture, or the captures have none in common.
        UnequalRepeatError: A repeat is no equal run of the baseline.
        OpGuardError: Any of the errors of reading captures and of writing reports.

    Source:
        Protocol requirements B13, E1.
    """
    named = {"baseline": baseline, "candidate": candidate}
    named |= {f"repeat-{number}": repeat for number, repeat in enumerate(repeats, 1)}
    chosen = _common_ranks(named) if ranks is None else ranks
    for name, side in named.items():
        missing = [rank for rank in chosen if rank not in side.available_ranks()]
        if missing:
            raise CaptureReadError(
                f"ranks: rank {missing[0]} is not in the {name} capture {side.capture} (it has "
                f"{side.available_ranks()}); compare only ranks that all captures have",
                rank=missing[0],
            )
    make_directories(OperationPaths(output))
    left, right, *further = [
        side.open_view(chosen, output / "tables" / name) for name, side in named.items()
    ]
    alignment = align_sources(left.sources, right.sources)
    if further:
        comparison = compare_with_repeats(left, right, alignment, chosen, further)
    else:
        comparison = compare_captures(left, right, alignment, chosen)
    comparison = name_silent_statements(comparison, alignment)
    return Compared(comparison, write_reports(comparison, output))


def _common_ranks(captures: Mapping[str, CaptureSource]) -> list[int]:
    available = {name: side.available_ranks() for name, side in captures.items()}
    common = sorted(set[int].intersection(*map(set, available.values())))
    if not common:
        listed = ", ".join(
            f"{captures[name].capture} has {ranks}" for name, ranks in available.items()
        )
        raise CaptureReadError(
            f"the captures have no rank in common ({listed}); compare traces of the same launch "
            "layout"
        )
    return common
