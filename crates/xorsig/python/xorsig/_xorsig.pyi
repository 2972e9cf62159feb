"""Types of the native module; import its names from ``xorsig``."""

from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any, Final, Protocol, Self, TypeAlias, final

from typing_extensions import Buffer, disjoint_base

__all__ = [
    "FORMAT_VERSION",
    "MIX_SCHEME",
    "XOR_SCHEME",
    "CallFrame",
    "CallSite",
    "CaptureWriter",
    "Effects",
    "IterateSite",
    "KnownParameters",
    "PanicException",
    "PendingSignature",
    "Recorder",
    "SubscriptSite",
    "__version__",
    "byte_ranges",
    "fingerprint",
    "fingerprint_tensor",
    "materialize",
    "read_receipt",
    "region_mix",
    "region_xor",
    "row_xor",
    "verify_capture",
    "write_perfetto",
    "write_receipt",
    "xor",
]

__version__: str
FORMAT_VERSION: Final[int]
XOR_SCHEME: Final[str]
MIX_SCHEME: Final[str]

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class _Array(Protocol):
    """An array whose stubs do not mention the buffer protocol, as numpy's before Python 3.12."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...

class _Recorder(Protocol):
    def begin(
        self,
        index: int,
        callee: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        /,
    ) -> Any: ...
    def finish(self, token: Any, result: Any, /) -> object: ...
    def fail(self, token: Any, error: BaseException, /) -> object: ...

_Signature: TypeAlias = bytes | PendingSignature | None

def xor(data: Buffer | _Array, *, threads: int | None = None) -> int: ...
def region_xor(
    data: Buffer | _Array, regions: int = 4, *, threads: int | None = None
) -> tuple[int, ...]: ...
def region_mix(
    data: Buffer | _Array, regions: int = 4, *, threads: int | None = None
) -> tuple[int, ...]: ...
def byte_ranges(nbytes: int, regions: int = 4) -> list[tuple[int, int]]: ...
def row_xor(data: Buffer | _Array, rows: int) -> list[int]: ...
def fingerprint(
    address: int,
    shape: Sequence[int],
    strides: Sequence[int],
    itemsize: int,
    regions: int = 4,
    *,
    threads: int | None = None,
) -> bytes: ...
def fingerprint_tensor(tensor: Any, regions: int = 4) -> bytes: ...

@final
class CallSite:
    def __new__(cls, index: int, callee: Callable[..., Any], recorder: _Recorder) -> CallSite: ...
    @property
    def index(self) -> int: ...
    @property
    def callee(self) -> Any: ...
    @property
    def recorder(self) -> Any: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

@final
class SubscriptSite:
    def __new__(cls, index: int, base: Any, recorder: _Recorder) -> SubscriptSite: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __delitem__(self, key: Any, /) -> None: ...

@final
class IterateSite:
    def __new__(
        cls,
        index: int,
        iterator: Iterator[Any],
        recorder: _Recorder,
        each: Callable[[Any], Any] | None = None,
    ) -> IterateSite: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...

@disjoint_base
class CallFrame:
    call: int
    site: int
    flags: int
    deep: bool
    is_step: bool
    optimizer_depth: int
    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self: ...
    @property
    def effects(self) -> Effects: ...
    def merge_effects(self, found: Effects) -> None: ...

@final
class Effects:
    def __len__(self) -> int: ...

@final
class KnownParameters:
    def __new__(cls, recorder: Recorder) -> KnownParameters: ...
    def changes(self) -> Effects: ...
    def around_step(self, frame: CallFrame, optimizer: Any, role: int) -> None: ...
    def members(self, optimizer: Any) -> list[tuple[str, Any]]: ...

@disjoint_base
class Recorder:
    enabled: bool
    paused: bool
    busy: bool
    step: int
    optimizer_depth: int
    calls: int
    elsewhere: int
    @property
    def tensors(self) -> int: ...
    def count_tensors(self, count: int) -> None: ...
    def __new__(cls, writer: Any, regions: int, thread: int, max_nested_calls: int) -> Self: ...
    def connect(self, torch: dict[str, Any]) -> bool: ...
    def disconnect(self) -> bool: ...
    def open_call(
        self,
        frame: CallFrame,
        site: int,
        callee: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> list[Any]: ...
    def close_call(
        self,
        frame: CallFrame,
        result: Any,
        error: BaseException | None,
        states: Callable[[Any], None] | None,
    ) -> None: ...
    @property
    def full(self) -> bool: ...
    @property
    def stack(self) -> list[Any]: ...

class PanicException(BaseException):
    """The exception raised when Rust code called from Python panics."""

@final
class PendingSignature:
    def __new__(cls) -> PendingSignature: ...
    @property
    def resolved(self) -> bool: ...
    @property
    def value(self) -> bytes | None: ...

@final
class CaptureWriter:
    def __new__(
        cls,
        directory: str | PathLike[str],
        staging: str | PathLike[str],
        *,
        capture_id: str,
        rank: int,
        regions: int = 4,
        max_batch_records: int = 65536,
        queue_batches: int = 4,
    ) -> CaptureWriter: ...
    def intern(self, text: str) -> int: ...
    def layout(
        self,
        dtype: str,
        shape: Sequence[int],
        strides: Sequence[int] | None,
        device: str,
        kind: str,
        logical_nbytes: int,
    ) -> int: ...
    def begin(
        self,
        parent: int,
        site: int,
        step: int,
        phase: int,
        thread: int,
        flags: int,
        callee_name_id: int,
    ) -> int: ...
    def end(self, call: int, status: int, flags: int, error_name_id: int) -> int: ...
    def tensor(
        self,
        call: int,
        role: int,
        slot_name_id: int,
        layout_id: int,
        signature: _Signature,
        note_name_id: int = 0,
        unless: PendingSignature | None = None,
    ) -> int: ...
    def tensors(
        self,
        call: int,
        role: int,
        rows: Sequence[tuple[int, int, _Signature, int]],
    ) -> None: ...
    def resolve(self, signatures: Sequence[PendingSignature], data: bytes | None) -> None: ...
    def value(self, call: int, role: int, slot_name_id: int, text: str) -> int: ...
    def mark(self, kind: int, step: int, name_id: int, text: str) -> int: ...
    def span(
        self,
        file_id: int,
        qualname_id: int,
        line: int,
        end_line: int,
        col: int,
        end_col: int,
        operator_id: int,
        count: int,
        flags: int,
        example_id: int,
    ) -> None: ...
    def flush(self) -> None: ...
    def stats(self) -> dict[str, int]: ...
    def close(self) -> dict[str, int]: ...

def write_receipt(path: str | PathLike[str], text: str) -> None: ...
def read_receipt(path: str | PathLike[str]) -> str: ...
def verify_capture(
    directory: str | PathLike[str],
    capture_id: str,
    rank: int,
    expected_batches: int | None = None,
    expected_records: int | None = None,
    threads: int | None = None,
) -> dict[str, int]: ...
def materialize(
    directory: str | PathLike[str],
    output: str | PathLike[str],
    *,
    capture_id: str,
    rank: int,
    partial: bool = False,
    expected_batches: int | None = None,
    expected_records: int | None = None,
    threads: int | None = None,
) -> dict[str, Any]: ...
def write_perfetto(
    path: str | PathLike[str],
    slices: _ArrowStream,
    slots: _ArrowStream,
    flows: _ArrowStream,
    *,
    trace_name: str = "opguard",
) -> dict[str, int]: ...
