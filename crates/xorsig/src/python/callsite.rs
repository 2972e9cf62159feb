//! The callable that stands in for a callee at an instrumented callsite.

use pyo3::exceptions::PyBaseException;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, intern};

use super::recorder::{self, Recorder};

/// Calls ``callee`` and tells ``recorder`` before and after.
///
/// A native frame: nothing shows in tracebacks or ``sys._getframe``. Each call asks
/// ``recorder.begin(index, callee, args, kwargs)`` for a token, with ``kwargs`` None if there are
/// none. Without a token (None) nothing more is reported. Otherwise ``recorder.finish(token,
/// result)`` or ``recorder.fail(token, error)`` follows; the callee's exception then passes on
/// unchanged. An exception of the recorder reaches the caller.
///
/// Args:
///     index: Number of the site.
///     callee: What is called.
///     recorder: Object with ``begin``, ``finish`` and ``fail``.
#[pyclass(frozen, module = "xorsig")]
pub struct CallSite {
    /// Number of the site in the plan.
    #[pyo3(get)]
    index: u32,
    /// What is called.
    #[pyo3(get)]
    callee: Py<PyAny>,
    /// Object with ``begin``, ``finish`` and ``fail``.
    #[pyo3(get)]
    recorder: Py<PyAny>,
}

#[pymethods]
impl CallSite {
    #[new]
    fn new(index: u32, callee: Py<PyAny>, recorder: Py<PyAny>) -> Self {
        Self {
            index,
            callee,
            recorder,
        }
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (callee, recorder) = (self.callee.bind(py), self.recorder.bind(py));
        call(self.index, callee, recorder, args, kwargs)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.callee)?;
        visit.call(&self.recorder)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "CallSite({}, {})",
            self.index,
            self.callee.bind(py).repr()?
        ))
    }
}

/// Calls `callee` with `args` and `kwargs` and tells `recorder` before and after.
pub fn call<'py>(
    index: u32,
    callee: &Bound<'py, PyAny>,
    recorder: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = callee.py();
    if let Ok(native) = recorder.cast::<Recorder>()
        && let Some(result) = recorder::run(native, index, callee, args, kwargs)?
    {
        return Ok(result);
    }
    let begun = (index, callee, args, kwargs);
    let token = recorder.call_method1(intern!(py, "begin"), begun)?;
    if token.is_none() {
        return callee.call(args, kwargs);
    }
    match recorder::caught(|| callee.call(args, kwargs)) {
        Ok(result) => {
            recorder.call_method1(intern!(py, "finish"), (token, &result))?;
            Ok(result)
        }
        Err(error) => {
            let raised = error.value(py).clone();
            match recorder.call_method1(intern!(py, "fail"), (token, &raised)) {
                Ok(_) => Err(error),
                Err(failure) => Err(in_context(py, failure, raised)),
            }
        }
    }
}

/// The recorder's own failure, with the callee's exception as its context, as Python would.
pub fn in_context(py: Python<'_>, failure: PyErr, raised: Bound<'_, PyBaseException>) -> PyErr {
    let attached = failure
        .value(py)
        .setattr(intern!(py, "__context__"), raised);
    attached.map_or_else(|error| error, |()| failure)
}
