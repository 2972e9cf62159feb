"""Errors of source selection, alignment and rewriting."""

from __future__ import annotations

from opguard.tools.protocol.errors import OpGuardError


class UnusableSourceError(OpGuardError):
    """A source file cannot be decoded or parsed; ``details["reason"]`` says why."""

    error_type = "unusable_source"


class RewriteError(OpGuardError):
    """A file cannot be instrumented without changing what it does.

    ``details`` holds ``file`` and, where one callsite is to blame, its id as ``site``.
    """

    error_type = "rewrite_failed"


class NothingToInstrumentError(OpGuardError):
    """No observed operation maps to an expression of the checkout that can be wrapped.

    ``details`` holds ``observed`` (counts) and ``excluded`` (path and reason of each exclusion).

    Source:
        Protocol requirement C4.
    """

    error_type = "nothing_to_instrument"


class ConfigurationError(OpGuardError):
    """A selection's configuration is malformed or asks for an unsupported section.

    Source:
        Protocol requirement C6.
    """

    error_type = "unsupported_configuration"


class InvalidPlanError(OpGuardError):
    """A plan file is missing, is not JSON, or does not follow the plan's model."""

    error_type = "invalid_plan"
