"""A recorder whose calls, and whose own work, are ranges of torch's profiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opguard.core.compiled import hidden_from_compiler
from opguard.core.device_activity import OWN_RANGE, DeviceActivity
from opguard.core.recording.frames import Frame
from opguard.core.recording.recorder import CallRecorder


class ActivityRecorder(CallRecorder):
    """Records every call in Python, and surrounds what is between two records with a range.

    The range of a call begins when its inputs are recorded and ends before its outputs are, so
    what runs in it is the workload's, apart from the ranges :data:`OWN_RANGE` of calls inside it.

    Args:
        activity: Makes the ranges.
        arguments: Those of :class:`CallRecorder`.
        options: Those of :class:`CallRecorder`, but for ``native``.
    """

    def __init__(self, *arguments: Any, activity: DeviceActivity, **options: Any) -> None:
        self._activity = activity
        self._ranges: list[tuple[Frame, Any]] = []
        super().__init__(*arguments, native=False, **options)

    @hidden_from_compiler
    def begin(
        self, index: int, callee: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> Frame | None:
        """Record a call's inputs and open its range."""
        frame = super().begin(index, callee, args, kwargs)
        if frame is not None:
            self._activity.call_begins()
            opened = self._activity.range(f"opguard:call:{frame.site}:{frame.call}")
            if opened is not None:
                self._ranges.append((frame, opened))
        return frame

    @hidden_from_compiler
    def finish(self, token: object, result: Any) -> None:
        """Close a call's range and record its outputs."""
        self._close_range(token)
        super().finish(token, result)

    @hidden_from_compiler
    def fail(self, token: object, error: BaseException) -> None:
        """Close the range of a call that raised."""
        self._close_range(token)
        super().fail(token, error)

    def guarded(
        self, where: str, action: Callable[[], None], *, engine_threads: bool = False
    ) -> bool:
        """As the base class does, in a range of its own."""
        opened = None if self.busy else self._activity.range(OWN_RANGE)
        try:
            return super().guarded(where, action, engine_threads=engine_threads)
        finally:
            if opened is not None:
                opened.__exit__(None, None, None)

    def _close_range(self, token: object) -> None:
        """Also ranges of calls inside that never ended, as of abandoned generators."""
        if any(frame is token for frame, _ in self._ranges):
            while True:
                frame, opened = self._ranges.pop()
                opened.__exit__(None, None, None)
                if frame is token:
                    return
