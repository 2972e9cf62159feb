//! The Perfetto report, from tables that export the Arrow C stream interface.

use std::path::PathBuf;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrow::import;
use crate::perfetto::{self, Report, ReportError};

/// Writes a flat Perfetto report.
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
    let report = Report { name: trace_name, slices: &slices, slots: &slots, flows: &flows };
    let written = py.detach(|| perfetto::write(&path, report)).map_err(|error| match error {
        ReportError::Invalid(message) => PyValueError::new_err(message),
        ReportError::Io { path, source } => {
            let number = source.raw_os_error().unwrap_or(libc::EIO);
            PyOSError::new_err((number, format!("cannot write it: {source}"), path.into_os_string()))
        }
    })?;
    let dict = PyDict::new(py);
    dict.set_item("events", written.events)?;
    dict.set_item("bytes", written.bytes)?;
    Ok(dict)
}
