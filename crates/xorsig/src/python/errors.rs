//! Rust errors to Python exceptions.

use std::io;
use std::path::Path;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::capture::error::{CaptureError, Corrupt};
use crate::capture::writer::WriteError;
use crate::materialize::MaterializeError;

/// `xorsig.CorruptBatchError(path, sequence, reason)`, which the Python half of the package
/// defines: a class with attributes is plainer there.
fn corrupt(py: Python<'_>, error: &Corrupt) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let arguments = (error.path.clone(), error.sequence, error.reason.clone());
    match CLASS.import(py, "xorsig._errors", "CorruptBatchError") {
        Ok(class) => PyErr::from_type(class.clone(), arguments),
        Err(error) => error,
    }
}

/// An `OSError` subclass by error number, with the path as its `filename`.
fn os_error(action: &str, path: &Path, source: &io::Error) -> PyErr {
    let number = source.raw_os_error().unwrap_or(match source.kind() {
        io::ErrorKind::AlreadyExists => libc::EEXIST,
        _ => libc::EIO,
    });
    PyOSError::new_err((
        number,
        format!("cannot {action} it: {source}"),
        path.as_os_str().to_owned(),
    ))
}

/// The exception of a capture error.
pub fn from_capture(py: Python<'_>, error: &CaptureError) -> PyErr {
    match error {
        CaptureError::Corrupt(error) => corrupt(py, error),
        CaptureError::Io {
            action,
            path,
            source,
        } => os_error(action, path, source),
        CaptureError::Invalid(message) => PyValueError::new_err(message.clone()),
    }
}

/// The exception of a writer's error: what the disk refused is an `OSError`, always.
pub fn from_write(py: Python<'_>, error: &WriteError) -> PyErr {
    match error {
        WriteError::Publish(error) => match &**error {
            CaptureError::Io { .. } => from_capture(py, error),
            other => PyOSError::new_err((libc::EIO, other.to_string())),
        },
        WriteError::Closed | WriteError::Invalid(_) => PyValueError::new_err(error.to_string()),
    }
}

/// The exception of a failed materialisation.
pub fn from_materialize(py: Python<'_>, error: &MaterializeError) -> PyErr {
    match error {
        MaterializeError::Capture(error) => from_capture(py, error),
        MaterializeError::Table { path, reason } => {
            PyOSError::new_err((libc::EIO, reason.clone(), path.as_os_str().to_owned()))
        }
    }
}
