"""Plans as files: the digests that tie result, plan, configuration and sources together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from opguard.tools.digests import sha256
from opguard.tools.protocol.errors import ArtifactMismatchError
from opguard.tools.protocol.models import PrepareResult
from opguard.tools.source import Plan, instrument, load_plan, parse_configuration
from opguard.tools.transaction import SourceMismatchError


@dataclass(frozen=True)
class CheckedPlan:
    """A plan whose digests agree with the files on disk.

    Attributes:
        plan: The plan.
        data: The plan file's bytes.
        sha256: Their digest.
        originals: Content of every planned file, by path relative to the checkout.
    """

    plan: Plan
    data: bytes
    sha256: str
    originals: dict[str, bytes]

    @classmethod
    def read(cls, prepared: PrepareResult, checkout: Path) -> CheckedPlan:
        """Read a plan and the sources it speaks of.

        Args:
            prepared: The request's ``plan``.
            checkout: The workload's checkout, resolved.

        Raises:
            ArtifactMismatchError: The plan or its configuration is missing or changed.
            ConfigurationError: The configuration has a section that is not supported.
            SourceMismatchError: Source files are not as the plan describes them; lists them.

        Source:
            Protocol requirement D1.
        """
        plan_path, configuration_path = Path(prepared.plan), Path(prepared.configuration)
        data = _read_artifact(plan_path, "plan.plan")
        configuration = _read_artifact(configuration_path, "plan.configuration")
        # Before the digest: a section that is not supported is named rather than called a change.
        parse_configuration(configuration.decode("utf-8", "replace"))
        _check_digest(plan_path, data, prepared.plan_sha256, "plan.plan")
        _check_digest(
            configuration_path, configuration, prepared.configuration_sha256, "plan.configuration"
        )
        plan = load_plan(plan_path)
        if plan.configuration_sha256 != prepared.configuration_sha256:
            raise ArtifactMismatchError(
                f"plan.configuration: {prepared.configuration} is not the configuration that the "
                f"plan {prepared.plan} was made with; run `prepare` again",
                path=prepared.configuration,
            )
        return cls(plan, data, prepared.plan_sha256, _read_sources(plan, checkout))

    def check_patterns(self, patterns: tuple[str, ...]) -> None:
        """Check that the callsites were chosen by the patterns that the workload asks for.

        Raises:
            ArtifactMismatchError: The plan was made for other patterns.
        """
        if self.plan.patterns != patterns:
            raise ArtifactMismatchError(
                f"plan.plan: it was made for the callsites {_listed(self.plan.patterns)}, but "
                f"OPGUARD_SELECT_CALLSITES asks for {_listed(patterns)}; run `prepare` with the "
                "same workload.env",
                field="plan.plan",
            )

    def instrument(self) -> dict[str, bytes]:
        """The instrumented content of every planned file.

        Raises:
            RewriteError: A callsite of the plan is not where it should be.
        """
        return {
            path: instrument(data, [site for site in self.plan.sites if site.file == path])
            for path, data in self.originals.items()
        }


def _listed(patterns: tuple[str, ...]) -> str:
    return ",".join(patterns) if patterns else "of no pattern (all)"


def _read_artifact(path: Path, field: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArtifactMismatchError(
            f"{field}: {path} cannot be read: {error.strerror}; run `prepare` again", path=path
        ) from error


def _check_digest(path: Path, data: bytes, expected: str, field: str) -> None:
    if sha256(data) != expected:
        raise ArtifactMismatchError(
            f"{field}: {path} was changed after `prepare` wrote it (its SHA-256 differs from the "
            "result's); run `prepare` again with a new output directory",
            path=path,
        )


def _read_sources(plan: Plan, checkout: Path) -> dict[str, bytes]:
    sources: dict[str, bytes] = {}
    faults: list[str] = []
    for file in plan.files:
        try:
            data = (checkout / file.path).read_bytes()
        except OSError as error:
            faults.append(f"{file.path} ({error.strerror})")
            continue
        if len(data) != file.size or sha256(data) != file.sha256:
            faults.append(f"{file.path} (changed)")
        sources[file.path] = data
    if faults:
        raise SourceMismatchError(
            f"source files in {checkout} are not as the plan describes them: {', '.join(faults)}; "
            "run `discover` and `prepare` again for this state of the checkout",
            files=[fault.rpartition(" (")[0] for fault in faults],
        )
    return sources
