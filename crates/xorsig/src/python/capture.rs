//! The capture writer.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::errors::{from_capture, from_write};
use super::pending::{PendingSignature, Signature};
use crate::capture::append::{Appender, Begin, LayoutText};
use crate::capture::parse_capture_id;
use crate::capture::pending::Pending;
use crate::capture::records::{SpanRow, TensorRow};
use crate::capture::writer::{self, Options, Stats, WriteError};

/// Slot, layout, signature and note of a tensor.
type Row = (u32, u32, Option<Signature>, u32);

/// Appends records of one rank; a native thread encodes and publishes them in batches.
///
/// Safe to share between threads. A batch is cut when it is full, or when a record arrives and
/// the oldest one waiting is a second old. When ``queue_batches`` cut batches wait, the next
/// record waits too (without the GIL): nothing is dropped. The thread exists while something waits;
/// a fork of the process waits until it is gone. In a forked child every method does nothing and
/// returns 0. Once publishing has failed, every method raises that error.
///
/// Args:
///     directory: The rank's own directory; created if missing.
///     staging: Where files are written before they are published; best on a local disk.
///     capture_id: 32 hexadecimal digits.
///     rank: Number of the rank.
///     regions: Regions per fingerprint, 1 to 64; a signature has ``8 * regions`` bytes.
///     max_batch_records: Records after which a batch is cut, 1 to 2**24.
///     queue_batches: Cut batches that may wait, at least 1.
///
/// Raises:
///     FileExistsError: The directory holds a batch of another writer.
///     OSError: A directory cannot be created.
///     ValueError: An argument is out of range.
///
/// Source:
///     docs/formats/batch.md.
#[pyclass(frozen, module = "xorsig")]
pub struct CaptureWriter {
    writer: writer::CaptureWriter,
}

impl CaptureWriter {
    /// Appends under the writer's lock; waits for it, or for the queue, without the GIL.
    pub fn append<T: Default + Send>(
        &self,
        py: Python<'_>,
        mut append: impl FnMut(&mut Appender<'_>) -> Result<T, WriteError> + Send,
    ) -> PyResult<T> {
        if self.writer.is_foreign() {
            return Ok(T::default());
        }
        let result = match self.writer.try_append(&mut append) {
            Some(result) => result,
            None => py.detach(|| self.writer.append(append)),
        };
        result.map_err(|error| from_write(py, &error))
    }

    /// As [`Self::append`], where the GIL is not held.
    pub fn append_without_gil<T: Default>(
        &self,
        append: impl FnOnce(&mut Appender<'_>) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        if self.writer.is_foreign() {
            return Ok(T::default());
        }
        self.writer.append(append)
    }
}

#[pymethods]
impl CaptureWriter {
    #[new]
    #[pyo3(signature = (
        directory, staging, *, capture_id, rank, regions=4, max_batch_records=65536, queue_batches=4
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "keyword arguments of the Python class"
    )]
    fn new(
        py: Python<'_>,
        directory: PathBuf,
        staging: PathBuf,
        capture_id: &str,
        rank: u32,
        regions: u32,
        max_batch_records: usize,
        queue_batches: usize,
    ) -> PyResult<Self> {
        let capture_id = parse_capture_id(capture_id).map_err(|error| from_capture(py, &error))?;
        let options = Options {
            directory,
            staging,
            capture_id,
            rank,
            regions,
            max_batch_records,
            queue_batches,
        };
        let writer = py.detach(|| writer::CaptureWriter::new(&options));
        Ok(Self {
            writer: writer.map_err(|error| from_capture(py, &error))?,
        })
    }

    /// Id of a name, stable within the capture; the empty name has id 0.
    ///
    /// Names are kept for the life of the writer: for texts that a program has few of.
    fn intern(&self, py: Python<'_>, text: &str) -> PyResult<u32> {
        self.append(py, |batch| batch.name(text))
    }

    /// Id of a layout, stable within the capture.
    #[expect(clippy::too_many_arguments, reason = "fields of the record")]
    fn layout(
        &self,
        py: Python<'_>,
        dtype: &str,
        shape: Vec<i64>,
        strides: Option<Vec<i64>>,
        device: &str,
        kind: &str,
        logical_nbytes: u64,
    ) -> PyResult<u32> {
        let layout = LayoutText {
            dtype,
            shape,
            strides,
            device,
            kind,
            logical_nbytes,
        };
        self.append(py, |batch| batch.layout(layout.clone()))
    }

    /// Records the begin of a call; the returned tick is the call's identity.
    ///
    /// Args:
    ///     parent: Tick of the enclosing call, 0 for none.
    ///     site: Site id of the plan.
    ///     step: Step label.
    ///     phase: 0 forward, 1 backward, 2 optimizer.
    ///     thread: Number of the thread.
    ///     flags: Call flags; those given to ``end`` are added.
    ///     callee_name_id: Name of the callee.
    #[expect(clippy::too_many_arguments, reason = "fields of the record")]
    fn begin(
        &self,
        py: Python<'_>,
        parent: u64,
        site: u32,
        step: i64,
        phase: u8,
        thread: u32,
        flags: u32,
        callee_name_id: u32,
    ) -> PyResult<u64> {
        let call = Begin {
            parent,
            site,
            step,
            phase,
            thread,
            flags,
            callee: callee_name_id,
        };
        self.append(py, |batch| batch.begin(call))
    }

    /// Records the end of a call.
    ///
    /// Args:
    ///     call: Tick of an open call.
    ///     status: 0 returned, 1 raised.
    ///     flags: Call flags to add.
    ///     error_name_id: Name of the error's type, or 0.
    fn end(
        &self,
        py: Python<'_>,
        call: u64,
        status: u8,
        flags: u32,
        error_name_id: u32,
    ) -> PyResult<u64> {
        self.append(py, |batch| batch.end(call, status, flags, error_name_id))
    }

    /// Records a tensor at the boundary of a call.
    ///
    /// Args:
    ///     call: Tick of the call, 0 for none.
    ///     role: 0 input, 1 output, 2 effect before, 3 effect after, 4 gradient, 5 RNG before,
    ///         6 RNG after.
    ///     slot_name_id: Name of the slot.
    ///     layout_id: What ``layout`` returned.
    ///     signature: What ``fingerprint`` returned, or a ``PendingSignature``; None if the tensor
    ///         could not be read.
    ///     note_name_id: Name of the reason when there is no signature.
    ///     unless: The record is withdrawn if this signature has the same bytes; only where both are
    ///         pending.
    ///
    /// Returns:
    ///     The record's tick.
    ///
    /// Raises:
    ///     ValueError: An id is unknown, ``role`` is out of range, or the signature's length is wrong.
    ///     OSError: Publishing an earlier batch failed.
    #[pyo3(signature = (
        call, role, slot_name_id, layout_id, signature, note_name_id=0, unless=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "fields of the record")]
    fn tensor(
        &self,
        py: Python<'_>,
        call: u64,
        role: u8,
        slot_name_id: u32,
        layout_id: u32,
        signature: Option<Signature>,
        note_name_id: u32,
        unless: Option<&Bound<'_, PendingSignature>>,
    ) -> PyResult<u64> {
        let row = (slot_name_id, layout_id, signature, note_name_id);
        let unless = unless.map(|unless| unless.get().0.clone());
        if unless.is_some() && !matches!(row.2, Some(Signature::Pending(_))) {
            return Err(PyValueError::new_err("unless needs a pending signature"));
        }
        self.append(py, |batch| append(batch, call, role, &row, unless.as_ref()))
    }

    /// Records several tensors of a call in one call of this method.
    ///
    /// Args:
    ///     call: Tick of the call, 0 for none.
    ///     role: As for ``tensor``, the same for all.
    ///     rows: ``(slot_name_id, layout_id, signature, note_name_id)`` of each tensor.
    ///
    /// Raises:
    ///     ValueError: As ``tensor``; the rows before the wrong one are recorded.
    ///     OSError: Publishing an earlier batch failed.
    fn tensors(&self, py: Python<'_>, call: u64, role: u8, rows: Vec<Row>) -> PyResult<()> {
        self.append(py, |batch| {
            for row in &rows {
                append(batch, call, role, row, None)?;
            }
            Ok(())
        })
    }

    /// Says what pending signatures are, so that the batches that wait for them are published.
    ///
    /// Args:
    ///     signatures: Of records of this writer.
    ///     data: Their bytes, one after the other; None if they are lost: their tensors then count as
    ///         not readable.
    ///
    /// Raises:
    ///     ValueError: ``data`` has the wrong length.
    fn resolve(
        &self,
        py: Python<'_>,
        signatures: Vec<Bound<'_, PendingSignature>>,
        data: Option<&[u8]>,
    ) -> PyResult<()> {
        if self.writer.is_foreign() {
            return Ok(());
        }
        let signatures: Vec<Pending> = signatures.iter().map(|s| s.get().0.clone()).collect();
        py.detach(|| self.writer.resolve(&signatures, data))
            .map_err(|error| from_write(py, &error))
    }

    /// Records a value that is not a tensor, by its text.
    ///
    /// Texts need no ``intern``: what is kept of them goes with their batch.
    fn value(
        &self,
        py: Python<'_>,
        call: u64,
        role: u8,
        slot_name_id: u32,
        text: &str,
    ) -> PyResult<u64> {
        self.append(py, |batch| batch.value(call, role, slot_name_id, text))
    }

    /// Records something that belongs to the run and not to a call.
    ///
    /// Args:
    ///     kind: 0 step completed, 1 user mark, 2 session note, 3 data, 4 place.
    ///     step: Step label.
    ///     name_id: Name.
    ///     text: The mark's value.
    fn mark(&self, py: Python<'_>, kind: u8, step: i64, name_id: u32, text: &str) -> PyResult<u64> {
        self.append(py, |batch| batch.mark(kind, step, name_id, text))
    }

    /// Records a source expression seen by discovery; it has no tick.
    ///
    /// Counts of equal spans (file, function, position, operator) add up in the tables, flags join.
    /// A part of the position that is unknown is -1.
    #[expect(clippy::too_many_arguments, reason = "fields of the record")]
    fn span(
        &self,
        py: Python<'_>,
        file_id: u32,
        qualname_id: u32,
        line: i32,
        end_line: i32,
        col: i32,
        end_col: i32,
        operator_id: u32,
        count: u64,
        flags: u32,
        example_id: u32,
    ) -> PyResult<()> {
        let row = SpanRow {
            file: file_id,
            qualname: qualname_id,
            position: [line, end_line, col, end_col],
            operator: operator_id,
            count,
            flags,
            example: example_id,
        };
        self.append(py, |batch| batch.span(row))
    }

    /// Cuts the current batch and waits until it is published, and so for its pending signatures.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        if self.writer.is_foreign() {
            return Ok(());
        }
        py.detach(|| self.writer.flush())
            .map_err(|error| from_write(py, &error))
    }

    /// Counts of what was published and of waiting.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.writer.is_foreign() {
            return stats_dict(py, Stats::default());
        }
        stats_dict(py, py.detach(|| self.writer.stats()))
    }

    /// Publishes what is left, ends the thread, and returns the final counts. Signatures that have
    /// not arrived are lost.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.writer.is_foreign() {
            return stats_dict(py, Stats::default());
        }
        let stats = py
            .detach(|| self.writer.close())
            .map_err(|error| from_write(py, &error))?;
        stats_dict(py, stats)
    }
}

fn append(
    batch: &mut Appender<'_>,
    call: u64,
    role: u8,
    (slot, layout, signature, note): &Row,
    unless: Option<&Pending>,
) -> Result<u64, WriteError> {
    let row = TensorRow {
        tick: 0,
        call,
        role,
        slot: *slot,
        layout: *layout,
        signature: None,
        note: *note,
    };
    match signature {
        Some(Signature::Pending(pending)) => batch.pending_tensor(row, pending, unless),
        Some(Signature::Bytes(bytes)) => batch.tensor(TensorRow {
            signature: Some(bytes),
            ..row
        }),
        None => batch.tensor(row),
    }
}

fn stats_dict(py: Python<'_>, stats: Stats) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("batches", stats.batches)?;
    dict.set_item("records", stats.records)?;
    dict.set_item("withdrawn", stats.withdrawn)?;
    dict.set_item("bytes", stats.bytes)?;
    dict.set_item("blocked", stats.blocked)?;
    dict.set_item("blocked_ns", stats.blocked_ns)?;
    Ok(dict)
}
