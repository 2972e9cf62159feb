//! Which callees are recorded natively: those that can only read their arguments.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyString};
use pyo3::{ffi, intern};

use super::hashing::Numbers;

/// Facts about a callee, as Python's rules tell them.
pub struct Plan {
    /// Interned name.
    pub name: u32,
    /// Whether it may move torch's random generators.
    pub random: bool,
    /// Positional arguments, without the bound tensor, that it may get.
    max_arguments: usize,
    /// Keyword arguments that make it write to its arguments.
    refused: Py<PyFrozenSet>,
}

impl Plan {
    /// Whether this call of it only reads its arguments.
    pub fn allows(&self, arguments: usize, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<bool> {
        if arguments > self.max_arguments {
            return Ok(false);
        }
        let Some(kwargs) = kwargs else {
            return Ok(true);
        };
        let refused = self.refused.bind(kwargs.py());
        for key in kwargs.keys() {
            if refused.contains(key)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

type Found = (u32, bool, usize, Py<PyFrozenSet>);

/// A method's name and its plan, where it can only read its arguments.
type Named = (String, Option<Arc<Plan>>);

/// The plans of callees seen so far.
pub struct Plans {
    /// By address of the callee, which is kept alive.
    by_object: Numbers<usize, (Py<PyAny>, Arc<Plan>)>,
    /// By C function, then by name: torch's tensor methods, bound anew at every use.
    by_method: Numbers<usize, Vec<Named>>,
    function: Py<PyAny>,
    method: Py<PyAny>,
    descriptor: Py<PyAny>,
    /// Python's `(callee) -> (name id, random, max arguments, refused keywords) | None`.
    classify: Py<PyAny>,
}

/// What a callee is: its plan, and the tensor that it is bound to.
pub type Callee<'py> = (Arc<Plan>, Option<Bound<'py, PyAny>>);

impl Plans {
    /// Knows no callee yet; `kinds` are the types of functions, bound methods and descriptors.
    pub fn new(kinds: [Py<PyAny>; 3], classify: Py<PyAny>) -> Self {
        let [function, method, descriptor] = kinds;
        Self {
            by_object: Numbers::default(),
            by_method: Numbers::default(),
            function,
            method,
            descriptor,
            classify,
        }
    }

    /// The plan of a callee; `None` if it is not to be recorded natively.
    pub fn find<'py>(
        &mut self,
        callee: &Bound<'py, PyAny>,
        is_tensor: impl Fn(&Bound<'py, PyAny>) -> bool,
    ) -> PyResult<Option<Callee<'py>>> {
        let py = callee.py();
        let kind = callee.get_type_ptr();
        if std::ptr::eq(kind, &raw const ffi::PyCFunction_Type) {
            // SAFETY: the callee is exactly a builtin function; the result is borrowed from it.
            let owner = unsafe {
                let owner = ffi::PyCFunction_GetSelf(callee.as_ptr());
                Bound::from_borrowed_ptr_or_opt(py, owner)
            };
            return match owner {
                Some(owner) if is_tensor(&owner) => {
                    Ok(self.bound_builtin(callee)?.map(|plan| (plan, Some(owner))))
                }
                _ => Ok(self.object(callee)?.map(|plan| (plan, None))),
            };
        }
        let kind = kind.cast::<ffi::PyObject>();
        if kind == self.function.as_ptr() || kind == self.descriptor.as_ptr() {
            return Ok(self.object(callee)?.map(|plan| (plan, None)));
        }
        if kind == self.method.as_ptr() {
            let owner = callee.getattr(intern!(py, "__self__"))?;
            if is_tensor(&owner) {
                let function = callee.getattr(intern!(py, "__func__"))?;
                return Ok(self.object(&function)?.map(|plan| (plan, Some(owner))));
            }
        }
        Ok(None)
    }

    fn bound_builtin(&mut self, callee: &Bound<'_, PyAny>) -> PyResult<Option<Arc<Plan>>> {
        let py = callee.py();
        // SAFETY: the callee is exactly a builtin function.
        let function = unsafe { ffi::PyCFunction_GetFunction(callee.as_ptr()) };
        let address = function.map_or(0, |function| function as usize);
        let name = callee.getattr(intern!(py, "__name__"))?;
        let name = name.cast::<PyString>()?.to_str()?;
        let known = self.by_method.entry(address).or_default();
        if let Some((_, plan)) = known.iter().find(|(known, _)| known == name) {
            return Ok(plan.clone());
        }
        let plan = classify(&self.classify, callee)?;
        known.push((name.to_owned(), plan.clone()));
        Ok(plan)
    }

    fn object(&mut self, callee: &Bound<'_, PyAny>) -> PyResult<Option<Arc<Plan>>> {
        let address = callee.as_ptr() as usize;
        if let Some((_, plan)) = self.by_object.get(&address) {
            return Ok(Some(Arc::clone(plan)));
        }
        let plan = classify(&self.classify, callee)?;
        if let Some(plan) = &plan {
            let entry = (callee.clone().unbind(), Arc::clone(plan));
            self.by_object.insert(address, entry);
        }
        Ok(plan)
    }
}

fn classify(rules: &Py<PyAny>, callee: &Bound<'_, PyAny>) -> PyResult<Option<Arc<Plan>>> {
    let found = rules.call1(callee.py(), (callee,))?;
    let found = found.extract::<Option<Found>>(callee.py())?;
    Ok(found.map(|(name, random, max_arguments, refused)| {
        Arc::new(Plan {
            name,
            random,
            max_arguments,
            refused,
        })
    }))
}
