"""Record a training of the Hugging Face Trainer: ``Trainer(callbacks=[OpGuardCallback("run-a")])``.

Each optimizer step, gradient accumulation included, is recorded as one call, ``step``.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from transformers import TrainerCallback

from opguard.core.capturing import EmbeddedSession, start
from opguard.core.session import Depth


class OpGuardCallback(TrainerCallback):
    """Starts a capture with the training and ends it with it.

    Args:
        output: Fresh directory for the capture.
        depth: ``aten`` records every operator with the lines that led to it, those of the library
            included; ``call`` records what the model observes itself.
        options: Further arguments of :func:`opguard.core.start`.
    """

    def __init__(
        self, output: str | os.PathLike[str], *, depth: Depth = "aten", **options: Any
    ) -> None:
        self._output = output
        self._depth = depth
        self._options = options
        self._session: EmbeddedSession | None = None
        self._step = contextlib.ExitStack()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the capture."""
        self._session = start(self._output, **self._options)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the call ``step``."""
        if self._session is not None:
            self._step.enter_context(self._session.scope("step", depth=self._depth))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the call ``step``."""
        self._step.close()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Complete the capture."""
        self._step.close()
        if self._session is not None:
            self._session.stop()
