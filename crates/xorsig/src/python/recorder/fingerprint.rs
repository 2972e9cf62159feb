//! Fingerprints as the recorder holds them: bytes, or something that is still on a device.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::super::pending::PendingSignature;
use crate::capture::pending::Pending;

/// Both schemes of a tensor.
#[derive(Debug, PartialEq, Eq)]
pub enum Fingerprint {
    /// Its bytes.
    Known(Vec<u8>),
    /// It is to come. Two of these are equal only if they are one reading.
    Pending(Pending),
}

impl Fingerprint {
    /// As Python holds it.
    pub fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Known(bytes) => Ok(PyBytes::new(py, bytes).into_any()),
            Self::Pending(pending) => {
                Ok(Bound::new(py, PendingSignature(pending.clone()))?.into_any())
            }
        }
    }

    /// Whether it equals what Python holds.
    pub fn equals(&self, other: &Bound<'_, PyAny>) -> bool {
        match self {
            Self::Known(bytes) => other
                .cast::<PyBytes>()
                .is_ok_and(|other| other.as_bytes() == bytes),
            Self::Pending(pending) => pending_of(other).is_some_and(|other| other == *pending),
        }
    }
}

/// The pending fingerprint that Python holds, if it is one.
pub fn pending_of(object: &Bound<'_, PyAny>) -> Option<Pending> {
    let pending = object.cast::<PendingSignature>().ok()?;
    Some(pending.get().0.clone())
}

impl<'a, 'py> FromPyObject<'a, 'py> for Fingerprint {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match pending_of(&object) {
            Some(pending) => Ok(Self::Pending(pending)),
            None => Ok(Self::Known(object.cast::<PyBytes>()?.as_bytes().to_vec())),
        }
    }
}
