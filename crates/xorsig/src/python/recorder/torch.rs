//! What the recorder asks torch for at every call.

use std::ffi::{CStr, c_void};

use pyo3::prelude::*;

use super::access::symbol;
use super::gradients::Accessors;
use super::held::WeakReferences;

/// torch's functions and properties, bound once.
pub struct Torch {
    /// Properties of tensors.
    pub accessors: Accessors,
    /// The numbers of active function and dispatch modes.
    modes: [Asked; 2],
    /// The number of the running backward pass, or -1.
    backward: Asked,
    /// Weak references to memory.
    pub weak_references: WeakReferences,
}

impl Torch {
    /// Binds what is given: properties, Python's functions for the numbers of modes and of the backward
    /// pass, and weak references.
    ///
    /// With the path of a `library`, torch's of a tested version, its C++ functions are asked instead.
    pub fn new(
        accessors: Accessors,
        [functions, dispatches]: [Py<PyAny>; 2],
        backward: Py<PyAny>,
        weak_references: WeakReferences,
        library: Option<&str>,
    ) -> Self {
        let find = |name: &CStr| library.and_then(|library| symbol(library, name));
        let wide = |object, name: &CStr| match find(name) {
            // SAFETY: torch declares the function with this type.
            Some(f) => Asked::Wide(unsafe { std::mem::transmute::<*mut c_void, Wide>(f) }),
            None => Asked::Object(object),
        };
        let backward = match find(c"_ZN5torch8autograd25get_current_graph_task_idEv") {
            // SAFETY: as above.
            Some(f) => Asked::Narrow(unsafe { std::mem::transmute::<*mut c_void, Narrow>(f) }),
            None => Asked::Object(backward),
        };
        Self {
            accessors,
            modes: [
                wide(
                    functions,
                    c"_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv",
                ),
                wide(
                    dispatches,
                    c"_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv",
                ),
            ],
            backward,
            weak_references,
        }
    }

    /// Whether a mode of the workload would see what the recorder reads.
    pub fn has_modes(&self, py: Python<'_>) -> PyResult<bool> {
        for count in &self.modes {
            if count.number(py)? != 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a backward pass runs in this thread.
    pub fn in_backward(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.backward.number(py)? != -1)
    }
}

type Wide = unsafe extern "C" fn() -> i64;
type Narrow = unsafe extern "C" fn() -> i32;

/// Who tells a number.
enum Asked {
    Wide(Wide),
    Narrow(Narrow),
    /// A function of Python.
    Object(Py<PyAny>),
}

impl Asked {
    fn number(&self, py: Python<'_>) -> PyResult<i64> {
        match self {
            // SAFETY: the function asks for a number of this thread and has no precondition.
            Self::Wide(function) => Ok(unsafe { function() }),
            // SAFETY: as above.
            Self::Narrow(function) => Ok(unsafe { function() }.into()),
            Self::Object(function) => {
                // SAFETY: the callable is alive, and the result is a new reference or null with an
                // error.
                let result = unsafe {
                    let result = pyo3::ffi::PyObject_CallNoArgs(function.as_ptr());
                    Bound::from_owned_ptr_or_err(py, result)?
                };
                result.extract()
            }
        }
    }
}
