"""Errors of the commands for people."""

from __future__ import annotations

from opguard.tools.protocol.errors import OpGuardError


class StepEndedError(OpGuardError):
    """A backend process ended without its JSON document: it was killed or crashed."""

    error_type = "step_ended"


class StepFailedError(Exception):
    """A backend operation reported an error; its type and message are passed on unchanged.

    Attributes:
        step: Name of the step, such as ``baseline-trace``.
        error_type: The protocol's identifier.
        message: The protocol's message.
    """

    def __init__(self, step: str, error_type: str, message: str) -> None:
        """Keep what the envelope said."""
        super().__init__(message)
        self.step = step
        self.error_type = error_type
        self.message = message
