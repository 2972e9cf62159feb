//! Signatures that arrive after their records.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::capture::pending::Pending;

/// A signature that arrives once, or is lost.
///
/// ``CaptureWriter.resolve`` says which. Until then the batches whose records have it wait, and
/// nothing else does. It is equal to itself alone, whatever it turns out to be.
#[pyclass(frozen, eq, module = "xorsig")]
#[derive(Default, PartialEq, Eq)]
pub struct PendingSignature(pub Pending);

#[pymethods]
impl PendingSignature {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Whether it has arrived or is lost.
    #[getter]
    fn resolved(&self) -> bool {
        self.0.is_resolved()
    }

    /// The bytes; ``None`` before they arrive, and if they are lost.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.bytes().map(|bytes| PyBytes::new(py, bytes))
    }
}

/// A signature as Python gives it: ``bytes`` or ``PendingSignature``.
pub enum Signature {
    /// Its bytes.
    Bytes(PyBackedBytes),
    /// It is to come.
    Pending(Pending),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Signature {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match object.cast::<PendingSignature>() {
            Ok(pending) => Ok(Self::Pending(pending.get().0.clone())),
            Err(_) => Ok(Self::Bytes(object.extract()?)),
        }
    }
}
