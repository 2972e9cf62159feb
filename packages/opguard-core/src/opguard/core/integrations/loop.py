"""Record a plain training loop: ``for batch in recorded(loader, "run-a"): ...``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from opguard.core.capturing import capture
from opguard.core.session import Depth

Batch = TypeVar("Batch")


def recorded(
    batches: Iterable[Batch],
    output: str | os.PathLike[str],
    *,
    depth: Depth = "aten",
    **options: Any,
) -> Iterator[Batch]:
    """Hand on the batches of a loop; each pass of its body is recorded as one call, ``batch``.

    Args:
        batches: What the loop goes over, a data loader for example. Each is recorded as ``inputs``.
        output: Fresh directory for the capture.
        depth: ``aten`` records every operator with the lines that led to it; ``call`` records what
            the body observes itself.
        options: Further arguments of :func:`opguard.core.capture`.

    Yields:
        The batches.
    """
    with capture(output, **options) as session:
        for batch in batches:
            with session.scope("batch", depth=depth):
                session.tensor("inputs", batch)
                try:
                    yield batch
                except GeneratorExit:
                    return  # the loop was left by break: the capture is complete
