//! One call through an instrumented callsite.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::super::callsite::in_context;
use super::Recorder;
use super::closing::Ending;

/// Calls `callee` and records the call; `None`, and nothing called, if Python is to do both.
pub fn run<'py>(
    this: &Bound<'py, Recorder>,
    site: u32,
    callee: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let stack = this.get().stack.bind(this.py());
    let depth = stack.len();
    let begun = match caught(|| Recorder::begin_native(this, site, callee, args, kwargs)) {
        Ok(Some(frame)) => frame,
        Ok(None) => return Ok(None),
        Err(error) => {
            // A panic may have left the call there.
            stack.del_slice(depth, stack.len())?;
            failed(this, "native call", error)?;
            return callee.call(args, kwargs).map(Some);
        }
    };
    let finish = |ending| caught(|| Recorder::finish_native(this, &begun, &Ending::of(ending)));
    // A `PanicException` that the callee raises would unwind past the end of the call.
    match caught(|| callee.call(args, kwargs)) {
        Ok(result) => {
            if let Err(error) = finish(Ok(&result)) {
                failed(this, "native call", error)?;
            }
            Ok(Some(result))
        }
        Err(error) => {
            let raised = error.value(this.py());
            match finish(Err(raised)) {
                Err(failure) => match failed(this, "native call", failure) {
                    Ok(()) => Err(error),
                    Err(failure) => Err(in_context(
                        this.py(),
                        failure,
                        error.value(this.py()).clone(),
                    )),
                },
                Ok(()) => Err(error),
            }
        }
    }
}

/// What a part of the recorder or a callee gives; a panic in it is an exception like others.
pub fn caught<T>(part: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(part)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("panic").to_owned();
        Err(PanicException::new_err(text))
    })
}

/// Notes a failure of the recorder; an exception that belongs to the workload comes back.
pub fn failed(this: &Bound<'_, Recorder>, at: &str, error: PyErr) -> PyResult<()> {
    let py = this.py();
    let is_own =
        error.is_instance_of::<PyException>(py) || error.is_instance_of::<PanicException>(py);
    if !is_own {
        return Err(error);
    }
    let value = error.value(py);
    // Before Python 3.12 an exception that no Python code has caught does not say where it was
    // raised, which tells whether a signal handler of the workload did.
    if let Some(traceback) = error.traceback(py) {
        value.setattr(intern!(py, "__traceback__"), traceback)?;
    }
    this.call_method1(intern!(py, "_failed"), (at, value))?;
    Ok(())
}
