//! What the recorder asks torch for at every call.

use pyo3::prelude::*;

use super::gradients::Accessors;
use super::held::WeakReferences;

/// torch's functions and properties, bound once.
pub struct Torch {
    /// Properties of tensors.
    pub accessors: Accessors,
    /// Functions that give the number of active function and dispatch modes.
    modes: [Py<PyAny>; 2],
    /// Function that gives the number of the running backward pass, or -1.
    backward: Py<PyAny>,
    /// Weak references to memory.
    pub weak_references: WeakReferences,
}

impl Torch {
    /// Binds what is given; see the fields.
    pub fn new(
        accessors: Accessors,
        modes: [Py<PyAny>; 2],
        backward: Py<PyAny>,
        weak_references: WeakReferences,
    ) -> Self {
        Self {
            accessors,
            modes,
            backward,
            weak_references,
        }
    }

    /// Whether a mode of the workload would see what the recorder reads.
    pub fn has_modes(&self, py: Python<'_>) -> PyResult<bool> {
        for count in &self.modes {
            if number(py, count)? != 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a backward pass runs in this thread.
    pub fn in_backward(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(number(py, &self.backward)? != -1)
    }
}

fn number(py: Python<'_>, function: &Py<PyAny>) -> PyResult<i64> {
    // SAFETY: the callable is alive, and the result is a new reference or null with an error.
    let result = unsafe {
        let result = pyo3::ffi::PyObject_CallNoArgs(function.as_ptr());
        Bound::from_owned_ptr_or_err(py, result)?
    };
    result.extract()
}
