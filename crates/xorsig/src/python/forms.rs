//! Stand-ins for what instrumented source subscripts and iterates over.
//!
//! Like `CallSite` they run no Python frame of their own, so that nothing of them shows in
//! tracebacks, in `sys._getframe`, or in the line that a warning names.

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use super::callsite::call;

/// ``base[...]`` as a recorded load, store or deletion: a call of a function of ``operator``.
///
/// Args:
///     index: Number of the site.
///     base: What is subscripted.
///     recorder: As for ``CallSite``.
#[pyclass(frozen, module = "xorsig")]
pub struct SubscriptSite {
    index: u32,
    base: Py<PyAny>,
    recorder: Py<PyAny>,
}

/// The function `name` of the standard library's `operator`, found once.
///
/// Not by a plain import of `operator`: a program may have a module of that name.
fn operator<'py>(
    py: Python<'py>,
    cell: &PyOnceLock<Py<PyAny>>,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let function = cell.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("_operator")?.getattr(name)?.unbind())
    })?;
    Ok(function.bind(py).clone())
}

impl SubscriptSite {
    fn call<'py>(
        &self,
        function: &Bound<'py, PyAny>,
        arguments: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = function.py();
        call(
            self.index,
            function,
            self.recorder.bind(py),
            arguments,
            None,
        )
    }
}

#[pymethods]
impl SubscriptSite {
    #[new]
    fn new(index: u32, base: Py<PyAny>, recorder: Py<PyAny>) -> Self {
        Self {
            index,
            base,
            recorder,
        }
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        static GETITEM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let arguments = PyTuple::new(key.py(), [self.base.bind(key.py()), key])?;
        self.call(&operator(key.py(), &GETITEM, "getitem")?, &arguments)
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        static SETITEM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let arguments = PyTuple::new(key.py(), [self.base.bind(key.py()), key, value])?;
        self.call(&operator(key.py(), &SETITEM, "setitem")?, &arguments)?;
        Ok(())
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        static DELITEM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let arguments = PyTuple::new(key.py(), [self.base.bind(key.py()), key])?;
        self.call(&operator(key.py(), &DELITEM, "delitem")?, &arguments)?;
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.base)?;
        visit.call(&self.recorder)
    }
}

/// The iterator of a loop, each of whose items is recorded as one call.
///
/// Args:
///     index: Number of the site.
///     iterator: What the loop goes over.
///     recorder: As for ``CallSite``.
///     each: Called with every item, and recorded, in place of the iterator's ``__next__``; it
///         gives the item back.
#[pyclass(frozen, module = "xorsig")]
pub struct IterateSite {
    index: u32,
    iterator: Py<PyAny>,
    recorder: Py<PyAny>,
    /// What is called for an item.
    callee: Py<PyAny>,
    /// Whether the callee is given the iterator's item, or makes one.
    takes_item: bool,
}

#[pymethods]
impl IterateSite {
    #[new]
    #[pyo3(signature = (index, iterator, recorder, each=None))]
    fn new(
        index: u32,
        iterator: &Bound<'_, PyAny>,
        recorder: Py<PyAny>,
        each: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let takes_item = each.is_some();
        let callee = match each {
            Some(callee) => callee,
            None => iterator.getattr("__next__")?.unbind(),
        };
        Ok(Self {
            index,
            iterator: iterator.clone().unbind(),
            recorder,
            callee,
            takes_item,
        })
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    // An item that the loop lets go of must be gone: nothing here keeps it.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (callee, recorder) = (self.callee.bind(py), self.recorder.bind(py));
        if !self.takes_item {
            return call(self.index, callee, recorder, &PyTuple::empty(py), None);
        }
        let item = self.iterator.bind(py).call_method0("__next__")?;
        call(
            self.index,
            callee,
            recorder,
            &PyTuple::new(py, [item])?,
            None,
        )
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.iterator)?;
        visit.call(&self.callee)?;
        visit.call(&self.recorder)
    }
}
