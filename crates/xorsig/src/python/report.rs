//! The Perfetto report, from tables that export the Arrow C stream interface.

use std::path::PathBuf;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrow::import;
use crate::perfetto::{self, Report, ReportError};

/// Writes a flat Perfetto report.
///
/// Tracks stand in the order in which ``slices`` first names them. Columns of ``slices`` beyond
/// those listed become debug annotations of their name; missing values are left out.
///
/// Args:
///     path: Path of the report; an older one is replaced once the new one is complete.
///     slices: ``id``, ``track``, ``ts_ns``, ``dur_ns``, ``name``. Slices of a track must nest.
///     slots: Tensors in order: ``slice``, ``slot``, ``role``, ``dtype``, ``shape``, ``device``,
///         ``xor_sig``, ``mix_sig``, ``regions``, ``logical_nbytes``, ``relation``, ``note``.
///     flows: ``id``, ``from``, ``to`` (slice ids).
///     trace_name: Name of the track that holds all others.
///
/// Returns:
///     ``events``, the number of slices, and ``bytes``, the size of the file.
///
/// Raises:
///     TypeError: A table does not export the Arrow C stream interface.
///     ValueError: A table lacks a column, holds a value of an unfit type, or names a slice that
///         does not exist; slice ids repeat; slices of a track overlap without nesting.
///     OSError: The file cannot be written.
///
/// Source:
///     Fingerprint specification F7; docs/formats/perfetto.md.
#[pyfunction]
#[pyo3(signature = (path, slices, slots, flows, *, trace_name="opguard"))]
pub fn write_perfetto<'py>(
    py: Python<'py>,
    path: PathBuf,
    slices: &Bound<'py, PyAny>,
    slots: &Bound<'py, PyAny>,
    flows: &Bound<'py, PyAny>,
    trace_name: &str,
) -> PyResult<Bound<'py, PyDict>> {
    let slices = import(slices, "slices")?;
    let slots = import(slots, "slots")?;
    let flows = import(flows, "flows")?;
    let report = Report {
        name: trace_name,
        slices: &slices,
        slots: &slots,
        flows: &flows,
    };
    let written = py
        .detach(|| perfetto::write(&path, report))
        .map_err(|error| match error {
            ReportError::Invalid(message) => PyValueError::new_err(message),
            ReportError::Io { path, source } => {
                let number = source.raw_os_error().unwrap_or(libc::EIO);
                PyOSError::new_err((
                    number,
                    format!("cannot write it: {source}"),
                    path.into_os_string(),
                ))
            }
        })?;
    let dict = PyDict::new(py);
    dict.set_item("events", written.events)?;
    dict.set_item("bytes", written.bytes)?;
    Ok(dict)
}
