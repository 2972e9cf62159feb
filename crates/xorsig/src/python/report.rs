//! The Perfetto report, from tables that export the Arrow C stream interface.

use std::path::PathBuf;

use arrow_array::RecordBatch;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::perfetto::{self, Report, ReportError};

/// All rows of a table; the GIL is held, since a stream may be implemented in Python.
fn import(table: &Bound<'_, PyAny>, argument: &str) -> PyResult<Vec<RecordBatch>> {
    let invalid = |error: &dyn std::fmt::Display| {
        PyValueError::new_err(format!("{argument} is not a readable Arrow stream: {error}"))
    };
    let export = table.getattr("__arrow_c_stream__").map_err(|_| {
        PyTypeError::new_err(format!("{argument} must have __arrow_c_stream__, as a DataFrame has"))
    })?;
    let capsule = export.call0()?.cast_into::<PyCapsule>()?;
    let stream = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: a capsule of this name holds a stream structure; `from_raw` moves it out and
    // leaves a released one behind, which the capsule's destructor accepts.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr().cast()) };
    let reader = RecordBatchStreamReader::try_new(stream).map_err(|error| invalid(&error))?;
    reader.collect::<Result<_, _>>().map_err(|error| invalid(&error))
}

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
            PyOSError::new_err((number, format!("cannot write it: {source}"), path))
        }
    })?;
    let dict = PyDict::new(py);
    dict.set_item("events", written.events)?;
    dict.set_item("bytes", written.bytes)?;
    Ok(dict)
}
