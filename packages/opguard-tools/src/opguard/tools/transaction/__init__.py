"""The source transaction: a checkout is instrumented, and comes back exactly as it was."""

from opguard.tools.transaction.bytecode import bytecode_environment
from opguard.tools.transaction.errors import (
    CheckoutLockedError,
    CheckoutMarkedError,
    CheckoutUnusableError,
    InstrumentationError,
    RecoveryError,
    RestoreError,
    SourceChangedError,
    SourceMismatchError,
    UnsafeSourceError,
)
from opguard.tools.transaction.lock import CheckoutLock
from opguard.tools.transaction.records import refuse_marked
from opguard.tools.transaction.recover import RecoverReport, recover
from opguard.tools.transaction.signals import Interrupted, interruptible
from opguard.tools.transaction.transaction import SourceTransaction

__all__ = [
    "CheckoutLock",
    "CheckoutLockedError",
    "CheckoutMarkedError",
    "CheckoutUnusableError",
    "InstrumentationError",
    "Interrupted",
    "RecoverReport",
    "RecoveryError",
    "RestoreError",
    "SourceChangedError",
    "SourceMismatchError",
    "SourceTransaction",
    "UnsafeSourceError",
    "bytecode_environment",
    "interruptible",
    "recover",
    "refuse_marked",
]
