"""Fingerprints of tensors on a CUDA device by the kernel library, on the caller's stream."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable

import torch

from opguard.core.cuda.library import (
    BOTH,
    PLAIN,
    CudaError,
    Library,
    LibraryNotUsableError,
    load_library,
)


def _current_stream(device: int) -> int:
    return int(torch._C._cuda_getCurrentRawStream(device))


def _to_stderr(text: str) -> None:
    print(f"opguard: {text}", file=sys.stderr)


class Kernels:
    """The kernel library as one process uses it: loaded at first use, with one report if not.

    A launch reads the tensor on the current stream, beside the operation that is recorded. What
    orders that operation with other uses of the memory orders the launch too, so neither the
    allocator nor the lifetime of the tensor is touched.

    Args:
        load: Finds the library.
        stream_of: Handle of the current stream of a device.
        report: Takes the one report.

    Attributes:
        problem: Why the library is not used; empty while nothing is wrong.
    """

    def __init__(
        self,
        load: Callable[[], Library] = load_library,
        stream_of: Callable[[int], int] = _current_stream,
        report: Callable[[str], None] = _to_stderr,
    ) -> None:
        self._load = load
        self._stream_of = stream_of
        self._report = report
        self._lock = threading.Lock()
        self._library: Library | None = None
        self._resident: dict[int, int] = {}
        # The sizes of a training recur, and a plan costs as much as a launch.
        self._workspace_bytes = functools.lru_cache(4096)(self._plan_workspace)
        self.problem = ""

    def usable(self, device: int) -> bool:
        """Whether the kernels run on a device; loads them at the first question.

        Args:
            device: Index of the device.
        """
        return device in self._resident or (not self.problem and self._prepare(device))

    def signature(
        self,
        tensor: torch.Tensor,
        regions: int,
        *,
        mixed: bool = True,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Launch the fingerprint of a tensor; does not wait.

        Args:
            tensor: A strided tensor without conjugate or negative bit, on a device that is
                :meth:`usable`. One that is not contiguous is copied first.
            regions: 1 to 64.
            mixed: Whether to compute the mixed scheme beside the plain one.
            out: ``int32[2 * regions]``, or ``int32[regions]`` without the mixed scheme, on the
                same device; allocated when absent.

        Returns:
            ``out``: the plain value of each region, then the mixed ones.

        Raises:
            CudaError: The launch failed.
        """
        library = self._library
        assert library is not None, "usable() comes first"
        device = max(tensor.get_device(), 0)  # a tensor of an emulated device is on the CPU
        schemes = BOTH if mixed else PLAIN
        with torch.no_grad():
            dense = tensor.detach().contiguous()
            values = regions * (2 if mixed else 1)
            if out is None:
                out = torch.empty(values, dtype=torch.int32, device=dense.device)
            nbytes = dense.numel() * dense.element_size()
            workspace_bytes = self._workspace_bytes(nbytes, regions, schemes, device)
            workspace = None
            if workspace_bytes:
                # From the allocator, whose blocks are ordered with this stream: a kept one would
                # be shared by streams, and by a captured graph with what runs beside it.
                workspace = torch.empty(workspace_bytes, dtype=torch.uint8, device=dense.device)
        library.fingerprint(
            dense.data_ptr() if nbytes else 0,
            nbytes,
            regions,
            schemes,
            out.data_ptr(),
            0 if workspace is None else workspace.data_ptr(),
            workspace_bytes,
            device,
            self._stream_of(device),
        )
        return out

    def relax_capture_mode(self) -> None:
        """For a thread that fetches results: captures of other threads do not forbid it to."""
        if self._library is not None:
            self._library.relax_capture_mode()

    def _plan_workspace(self, nbytes: int, regions: int, schemes: int, device: int) -> int:
        assert self._library is not None
        plan = self._library.plan(nbytes, regions, schemes, self._resident[device])
        return int(plan.workspace_bytes)

    def _prepare(self, device: int) -> bool:
        with self._lock:
            if self.problem:
                return False
            try:
                if self._library is None:
                    self._library = self._load()
                self._resident[device] = self._library.resident_blocks(device)
            except (LibraryNotUsableError, CudaError) as error:
                self.problem = str(error)
                self._report(self.problem)
                return False
            return True


KERNELS = Kernels()
