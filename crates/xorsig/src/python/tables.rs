//! Reading captures: verification, tables, receipts.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::errors::{from_capture, from_materialize};
use crate::capture::reader::{CaptureReader, Expected, Summary};
use crate::capture::{parse_capture_id, receipt};
use crate::materialize as tables;

fn summary_dict<'py>(py: Python<'py>, summary: &Summary) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("batches", summary.batches)?;
    dict.set_item("records", summary.records)?;
    dict.set_item("bytes", summary.bytes)?;
    dict.set_item("last_tick", summary.last_tick)?;
    dict.set_item("created_unix_ns", summary.created_unix_ns)?;
    dict.set_item("regions", summary.regions)?;
    Ok(dict)
}

/// The number of threads that is asked for, or that of the processors that may be used.
fn thread_count(threads: Option<usize>) -> usize {
    threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Decodes every batch of a rank's directory and raises on the first that is wrong.
///
/// Args:
///     directory: The rank's own directory.
///     capture_id: 32 hexadecimal digits.
///     rank: Rank that the batches must name.
///     expected_batches: Number of batches according to the rank's receipt.
///     expected_records: Number of records according to the rank's receipt.
///     threads: Batches that are decoded at the same time; as many as there are processors if None.
///
/// Returns:
///     ``batches``, ``records``, ``bytes``, ``last_tick``, ``created_unix_ns``, ``regions``.
///
/// Raises:
///     CorruptBatchError: A batch is damaged, missing, repeated, or of another capture, rank or
///         writer; or the counts are not the expected ones.
///     OSError: The directory or a file cannot be read.
///     ValueError: ``capture_id`` is malformed.
///
/// Source:
///     Protocol specification B6; docs/formats/batch.md.
#[pyfunction]
#[pyo3(signature = (
    directory, capture_id, rank, expected_batches=None, expected_records=None, threads=None
))]
pub fn verify_capture<'py>(
    py: Python<'py>,
    directory: PathBuf,
    capture_id: &str,
    rank: u32,
    expected_batches: Option<u64>,
    expected_records: Option<u64>,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyDict>> {
    let id = parse_capture_id(capture_id).map_err(|error| from_capture(py, &error))?;
    let expected = Expected {
        batches: expected_batches,
        records: expected_records,
    };
    let verify = || {
        CaptureReader::open(&directory, id, rank, expected)?
            .with_threads(thread_count(threads))
            .finish()
    };
    let summary = py
        .detach(verify)
        .map_err(|error| from_capture(py, &error))?;
    summary_dict(py, &summary)
}

/// Writes the tables of a rank's directory as Parquet files into ``output``.
///
/// Everything that ``verify_capture`` checks is checked. Tables appear under their names only
/// when all are complete; those of an earlier run are replaced.
///
/// Args:
///     directory: The rank's own directory.
///     output: Directory of the tables; created if missing.
///     capture_id: 32 hexadecimal digits.
///     rank: Rank that the batches must name.
///     partial: Keep the complete batches before the first wrong one instead of raising.
///     expected_batches: Number of batches according to the rank's receipt.
///     expected_records: Number of records according to the rank's receipt.
///     threads: 1 to do everything in this thread; with more, one thread decodes and one encodes the
///         tensors meanwhile. As many as there are processors if None.
///
/// Returns:
///     What ``verify_capture`` returns for the batches that went into the tables, and
///     ``complete`` (bool) and ``reason`` (text, or None if complete).
///
/// Raises:
///     CorruptBatchError: As ``verify_capture``, unless ``partial``.
///     OSError: A file cannot be read or written.
///     ValueError: ``capture_id`` is malformed.
///
/// Source:
///     Protocol specification B13; docs/formats/tables.md.
#[pyfunction]
#[pyo3(signature = (
    directory, output, *, capture_id, rank, partial=false,
    expected_batches=None, expected_records=None, threads=None
))]
#[expect(
    clippy::too_many_arguments,
    reason = "keyword arguments of the Python function"
)]
pub fn materialize<'py>(
    py: Python<'py>,
    directory: PathBuf,
    output: PathBuf,
    capture_id: &str,
    rank: u32,
    partial: bool,
    expected_batches: Option<u64>,
    expected_records: Option<u64>,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyDict>> {
    let id = parse_capture_id(capture_id).map_err(|error| from_capture(py, &error))?;
    let expected = Expected {
        batches: expected_batches,
        records: expected_records,
    };
    let run = || {
        let reader = CaptureReader::open(&directory, id, rank, expected)?;
        // Decoding takes less time than encoding, so that more threads would wait.
        let reader = match thread_count(threads) {
            1 => reader,
            _ => reader.decoding_ahead(),
        };
        tables::materialize(reader, &output, partial)
    };
    let outcome = py
        .detach(run)
        .map_err(|error| from_materialize(py, &error))?;
    let dict = summary_dict(py, &outcome.summary)?;
    dict.set_item("complete", outcome.incomplete.is_none())?;
    dict.set_item(
        "reason",
        outcome.incomplete.map(|corrupt| corrupt.to_string()),
    )?;
    Ok(dict)
}

/// Writes ``text`` as a receipt that no later one replaces.
///
/// The file is durable when the call returns. Missing parent directories are created.
///
/// Args:
///     path: Path of the receipt.
///     text: Any text of at most 16 MiB.
///
/// Raises:
///     FileExistsError: The path is taken.
///     OSError: The file cannot be written.
///     ValueError: The text is too long.
///
/// Source:
///     Protocol specification B5; docs/formats/receipt.md.
#[pyfunction]
pub fn write_receipt(py: Python<'_>, path: PathBuf, text: &str) -> PyResult<()> {
    py.detach(|| receipt::write(&path, text))
        .map_err(|error| from_capture(py, &error))
}

/// Reads the text of a receipt, checksum verified.
///
/// Args:
///     path: Path of the receipt.
///
/// Returns:
///     The text.
///
/// Raises:
///     CorruptBatchError: A byte is not what was written; ``sequence`` is None.
///     OSError: The file cannot be read.
///
/// Source:
///     docs/formats/receipt.md.
#[pyfunction]
pub fn read_receipt(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    py.detach(|| receipt::read(&path))
        .map_err(|error| from_capture(py, &error))
}
