"""Record a training of Lightning: ``Trainer(callbacks=[OpGuardCallback("run-a")])``."""

from __future__ import annotations

import contextlib
import os
from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:  # the same library under its older name
    from pytorch_lightning import Callback

from opguard.core.capturing import EmbeddedSession, start
from opguard.core.session import Depth


class OpGuardCallback(Callback):
    """Starts a capture with the fit and ends it with it; each training batch is one call.

    Args:
        output: Fresh directory for the capture.
        depth: ``aten`` records every operator with the lines that led to it, those of the library
            included; ``call`` records what the module observes itself.
        options: Further arguments of :func:`opguard.core.start`.
    """

    def __init__(
        self, output: str | os.PathLike[str], *, depth: Depth = "aten", **options: Any
    ) -> None:
        self._output, self._depth, self._options = output, depth, options
        self._session: EmbeddedSession | None = None
        self._batch = contextlib.ExitStack()

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the capture."""
        self._session = start(self._output, **self._options)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, *index: int) -> None:
        """Open the call ``batch`` and record the batch itself."""
        if self._session is not None:
            self._batch.enter_context(self._session.scope("batch", depth=self._depth))
            self._session.tensor("inputs", batch)

    def on_train_batch_end(self, *args: Any) -> None:
        """Close the call ``batch``."""
        self._batch.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Complete the capture of a training that failed."""
        self._stop(exception)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Complete the capture."""
        self._stop(None)

    def _stop(self, failure: BaseException | None) -> None:
        self._batch.close()
        if self._session is not None:
            self._session.stop(failure)
