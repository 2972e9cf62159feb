"""``discover``: run a workload once and record which of its expressions touch tensors."""

from __future__ import annotations

from opguard.tools.launch.interruption import Interruption
from opguard.tools.launch.operation import Operation
from opguard.tools.launch.paths import make_directories
from opguard.tools.protocol.models import DiscoverRequest, DiscoverResult
from opguard.tools.transaction import CheckoutLock, refuse_marked


def run(request: DiscoverRequest) -> DiscoverResult:
    """Run the workload under the discovery mode; its sources stay as they are.

    Raises:
        OpGuardError: Any of the errors of launching, locking and verifying.

    Source:
        Protocol requirements B1-B8, D2.
    """
    operation = Operation.check("discover", request)
    with Interruption() as interruption, CheckoutLock(operation.checkout, "discover"):
        refuse_marked(operation.checkout)
        make_directories(operation.paths)
        outcome = operation.run(interruption)
        interruption.check()
        return operation.conclude(outcome, lambda _, fields: DiscoverResult(**fields))
