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
    /// What it is to become, if it is still on a device.
    pub fn pending(&self) -> Option<&Pending> {
        match self {
            Self::Known(_) => None,
            Self::Pending(pending) => Some(pending),
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Fingerprint {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match object.cast::<PendingSignature>() {
            Ok(pending) => Ok(Self::Pending(pending.get().0.clone())),
            Err(_) => Ok(Self::Known(object.cast::<PyBytes>()?.as_bytes().to_vec())),
        }
    }
}
