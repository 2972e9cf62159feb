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

/// Decodes every batch of a rank's directory and raises on the first that is wrong.
#[pyfunction]
#[pyo3(signature = (directory, capture_id, rank, expected_batches=None, expected_records=None))]
pub fn verify_capture<'py>(
    py: Python<'py>,
    directory: PathBuf,
    capture_id: &str,
    rank: u32,
    expected_batches: Option<u64>,
    expected_records: Option<u64>,
) -> PyResult<Bound<'py, PyDict>> {
    let id = parse_capture_id(capture_id).map_err(|error| from_capture(py, &error))?;
    let expected = Expected { batches: expected_batches, records: expected_records };
    let verify = || CaptureReader::open(&directory, id, rank, expected)?.finish();
    let summary = py.detach(verify).map_err(|error| from_capture(py, &error))?;
    summary_dict(py, &summary)
}

/// Writes the tables of a rank's directory as Parquet files into ``output``.
#[pyfunction]
#[pyo3(signature = (
    directory, output, *, capture_id, rank, partial=false,
    expected_batches=None, expected_records=None
))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of the Python function")]
pub fn materialize<'py>(
    py: Python<'py>,
    directory: PathBuf,
    output: PathBuf,
    capture_id: &str,
    rank: u32,
    partial: bool,
    expected_batches: Option<u64>,
    expected_records: Option<u64>,
) -> PyResult<Bound<'py, PyDict>> {
    let id = parse_capture_id(capture_id).map_err(|error| from_capture(py, &error))?;
    let expected = Expected { batches: expected_batches, records: expected_records };
    let run = || {
        let reader = CaptureReader::open(&directory, id, rank, expected)?;
        tables::materialize(reader, &output, partial)
    };
    let outcome = py.detach(run).map_err(|error| from_materialize(py, &error))?;
    let dict = summary_dict(py, &outcome.summary)?;
    dict.set_item("complete", outcome.incomplete.is_none())?;
    dict.set_item("reason", outcome.incomplete.map(|corrupt| corrupt.to_string()))?;
    Ok(dict)
}

/// Writes ``text`` as a receipt that no later one replaces.
#[pyfunction]
pub fn write_receipt(py: Python<'_>, path: PathBuf, text: &str) -> PyResult<()> {
    py.detach(|| receipt::write(&path, text)).map_err(|error| from_capture(py, &error))
}

/// Reads the text of a receipt, checksum verified.
#[pyfunction]
pub fn read_receipt(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    py.detach(|| receipt::read(&path)).map_err(|error| from_capture(py, &error))
}
