"""``prepare``: turn what a discovery observed into a selection of callsites and a plan."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from opguard.tools.actions.tables import materialize_capture
from opguard.tools.digests import sha256
from opguard.tools.durable import write_durable
from opguard.tools.formats import CONFIGURATION_NAME, PLAN_NAME
from opguard.tools.launch.paths import OperationPaths, check_paths, make_directories, resolve
from opguard.tools.launch.selection import takes_callsite
from opguard.tools.launch.settings import capture_settings
from opguard.tools.protocol.errors import ArtifactMismatchError, WorkloadNotFoundError
from opguard.tools.protocol.models import (
    DiscoverResult,
    ExcludedFile,
    PlannedFile,
    PrepareRequest,
    PrepareResult,
    Workload,
)
from opguard.tools.source import (
    ObservedSpan,
    Peer,
    Plan,
    build_plan,
    configuration_text,
    read_observations,
    select_sites,
)
from opguard.tools.transaction import CheckoutLock, refuse_marked


def run(request: PrepareRequest) -> PrepareResult:
    """Write a configuration and a plan for a checkout.

    Both checkouts are locked while they are read, so that no operation can have instrumented text
    in them at that time.

    Raises:
        ArtifactMismatchError: A discovery does not belong to the workload given with it.
        InvalidSettingError: ``OPGUARD_SELECT_CALLSITES`` is malformed.
        OpGuardError: Any of the errors of locking, of reading a capture and of selecting.

    Source:
        Protocol requirements C1-C6, D2.
    """
    paths = check_paths(request.output, checkout=request.workload.cwd)
    assert paths.checkout is not None
    sides = {paths.checkout: ("discovery", request.discovery)}
    counterpart = request.counterpart
    if counterpart is not None:
        sides.setdefault(
            _counterpart_checkout(counterpart.workload),
            ("counterpart.discovery", counterpart.discovery),
        )
    with ExitStack() as locks:
        # In one order everywhere: two preparations of one pair must not each hold one lock.
        for checkout in sorted(sides):
            locks.enter_context(CheckoutLock(checkout, "prepare"))
            refuse_marked(checkout)
        _check_discovery(request.discovery, paths.checkout, "discovery")
        make_directories(paths)
        spans = _observations(request.discovery, paths, "tables")
        peer = None
        if counterpart is not None:
            other = resolve(counterpart.workload.cwd)
            _check_discovery(counterpart.discovery, other, "counterpart.discovery")
            peer = Peer(other, _observations(counterpart.discovery, paths, "tables-counterpart"))
        patterns = capture_settings(request.workload.env).selection.patterns
        takes = partial(takes_callsite, patterns) if patterns else None
        selection = select_sites(paths.checkout, spans, peer, request.depth, takes)
    configuration = configuration_text(selection.files, selection.sites, selection.excluded)
    plan = build_plan(selection.files, selection.sites, selection.excluded, configuration, patterns)
    return _write(paths, configuration.encode(), plan)


def _counterpart_checkout(workload: Workload) -> Path:
    checkout = resolve(workload.cwd)
    if not checkout.is_dir():
        raise WorkloadNotFoundError(
            f"counterpart.workload.cwd: {checkout} is not a directory; name the other side's "
            "checkout",
            path=checkout,
        )
    return checkout


def _check_discovery(discovery: DiscoverResult, checkout: Path, field: str) -> None:
    if resolve(discovery.checkout) != checkout:
        raise ArtifactMismatchError(
            f"{field}: it was made in {discovery.checkout}, but the workload's checkout is "
            f"{checkout}; run `discover` there and pass its result unchanged",
            field=field,
        )


def _observations(
    discovery: DiscoverResult, paths: OperationPaths, folder: str
) -> list[ObservedSpan]:
    tables = materialize_capture(
        Path(discovery.capture),
        discovery.capture_id,
        discovery.ranks,
        paths.output / folder,
        # What a workload showed before it failed is observed like the rest.
        partial=discovery.ending is not None,
    )
    return read_observations([tables.folders[rank] for rank in discovery.ranks])


def _write(paths: OperationPaths, configuration: bytes, plan: Plan) -> PrepareResult:
    plan_data = plan.to_json().encode()
    configuration_path = paths.output / CONFIGURATION_NAME
    plan_path = paths.output / PLAN_NAME
    write_durable(configuration_path, configuration)
    write_durable(plan_path, plan_data)
    per_file = Counter(site.file for site in plan.sites)
    return PrepareResult(
        plan=str(plan_path),
        plan_sha256=sha256(plan_data),
        configuration=str(configuration_path),
        configuration_sha256=plan.configuration_sha256,
        files=[
            PlannedFile(
                path=file.path, size=file.size, sha256=file.sha256, sites=per_file[file.path]
            )
            for file in plan.files
        ],
        sites=len(plan.sites),
        observed_sites=sum(site.observed for site in plan.sites),
        excluded=[ExcludedFile(path=item.path, reason=item.reason) for item in plan.excluded],
    )
