//! One known parameter: where it is found again, and what was read of it last.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyWeakrefReference};

use super::effects::{Effect, Effects, Name};
use super::look::{Key, Seen};
use super::state::{Reading, State};

/// Where a parameter is found again. A weak reference to the tensor itself would make
/// `torch.utils.swap_tensors` raise, which modules use to convert their parameters.
pub enum Place {
    /// In a module's own parameters, by name.
    Field(Py<PyString>),
    /// In a group of an optimizer, by index.
    Group(usize, usize),
    /// Nowhere: the reference is to the tensor.
    Itself,
}

/// One parameter, and the readings of it and of its gradient.
///
/// A reading is kept with the key that it was taken at, so that nothing is kept alive.
pub struct Entry {
    pub identity: usize,
    pub owner: Py<PyWeakrefReference>,
    pub place: Place,
    pub names: Arc<Names>,
    pub by_position: bool,
    pub seen: Seen,
    pub reading: Reading,
    pub gradient_seen: Seen,
    pub gradient: Option<Reading>,
}

/// The slots of a parameter.
pub struct Names {
    /// What it is called.
    pub name: String,
    pub parameter: Arc<Name>,
    pub gradient: Arc<Name>,
    /// The group of an optimizer that has it.
    pub group: Arc<Name>,
}

impl Names {
    pub fn new(state: &State, py: Python<'_>, name: &str) -> PyResult<Arc<Self>> {
        let slot = |text: String| {
            let id = state.sink.name(py, &text)?;
            PyResult::Ok(Arc::new(Name { text, id }))
        };
        Ok(Arc::new(Self {
            name: name.to_owned(),
            parameter: slot(format!("param.{name}"))?,
            gradient: slot(format!("grad.param.{name}"))?,
            group: slot(format!("value.param.{name}.group"))?,
        }))
    }
}

/// The module whose parameters were looked up last: those of one module follow one another.
#[derive(Default)]
pub struct LastOwner<'py> {
    reference: usize,
    fields: Option<Bound<'py, PyDict>>,
}

impl Entry {
    /// The parameter; `None` once its owner is gone or holds another one instead.
    pub fn find<'py>(
        &self,
        py: Python<'py>,
        last: &mut LastOwner<'py>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let reference = self.owner.as_ptr() as usize;
        if let (Place::Field(name), Some(fields)) = (&self.place, &last.fields)
            && last.reference == reference
        {
            return Ok(self.if_same(fields.get_item(name)?));
        }
        // SAFETY: the reference is a weak reference; what it gives is borrowed, and taken at once.
        let owner = unsafe {
            let owner = pyo3::ffi::PyWeakref_GetObject(self.owner.as_ptr());
            Bound::from_borrowed_ptr_or_opt(py, owner)
        };
        let Some(owner) = owner.filter(|owner| !owner.is_none()) else {
            return Ok(None);
        };
        let found = match &self.place {
            Place::Itself => return Ok(Some(owner)),
            Place::Field(name) => {
                let fields = owner.getattr(intern!(py, "_parameters"))?;
                match fields.cast_into_exact::<PyDict>() {
                    Ok(fields) => {
                        let found = fields.get_item(name)?;
                        let fields = Some(fields);
                        *last = LastOwner { reference, fields };
                        found
                    }
                    Err(error) => {
                        let fields = error.into_inner();
                        Some(fields.call_method1(intern!(py, "get"), (name,))?)
                    }
                }
            }
            Place::Group(group, index) => owner
                .getattr(intern!(py, "param_groups"))
                .and_then(|groups| groups.get_item(*group))
                .and_then(|group| group.get_item(intern!(py, "params")))
                .and_then(|parameters| parameters.get_item(*index))
                .ok(),
        };
        Ok(self.if_same(found))
    }

    fn if_same<'py>(&self, found: Option<Bound<'py, PyAny>>) -> Option<Bound<'py, PyAny>> {
        found.filter(|found| found.as_ptr() as usize == self.identity)
    }

    /// Reads the parameter again, which has this key now.
    pub fn read_parameter(
        &mut self,
        state: &mut State,
        parameter: &Bound<'_, PyAny>,
        key: Key,
    ) -> PyResult<()> {
        let references = &state.torch.weak_references;
        let key = self
            .seen
            .before_reading(references, key, || Ok(Some(parameter.clone())))?;
        self.reading = state.reading(parameter)?;
        self.seen.after_reading(key);
        Ok(())
    }

    /// Reads the gradient again, which has this key now.
    pub fn read_gradient(
        &mut self,
        state: &mut State,
        parameter: &Bound<'_, PyAny>,
        key: Key,
    ) -> PyResult<()> {
        let (references, accessors) = (&state.torch.weak_references, &state.torch.accessors);
        let key = self
            .gradient_seen
            .before_reading(references, key, || accessors.gradient(parameter))?;
        self.gradient = state.gradient_of(parameter)?;
        self.gradient_seen.after_reading(key);
        Ok(())
    }

    /// Reads the parameter again, and notes whether its bytes changed.
    pub fn note_parameter(
        &mut self,
        state: &mut State,
        parameter: &Bound<'_, PyAny>,
        key: Key,
        found: &Effects,
    ) -> PyResult<()> {
        let before = Arc::clone(&self.reading);
        self.read_parameter(state, parameter, key)?;
        if !same_bytes(Some(&before), Some(&self.reading)) {
            found.add(Effect {
                slot: Arc::clone(&self.names.parameter),
                before: Some(before),
                after: Some(Arc::clone(&self.reading)),
            });
        }
        Ok(())
    }

    /// Reads the gradient again, and notes whether its bytes changed.
    pub fn note_gradient(
        &mut self,
        state: &mut State,
        parameter: &Bound<'_, PyAny>,
        key: Key,
        found: &Effects,
    ) -> PyResult<()> {
        let before = self.gradient.clone();
        self.read_gradient(state, parameter, key)?;
        if !same_bytes(before.as_ref(), self.gradient.as_ref()) {
            found.add(Effect {
                slot: Arc::clone(&self.names.gradient),
                before,
                after: self.gradient.clone(),
            });
        }
        Ok(())
    }
}

/// Whether two readings are of the same layouts and bytes; notes do not count.
fn same_bytes(a: Option<&Reading>, b: Option<&Reading>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => {
            let parts = a.iter().zip(b.iter());
            a.len() == b.len()
                && parts
                    .into_iter()
                    .all(|(a, b)| (a.layout, &a.signature) == (b.layout, &b.signature))
        }
        _ => false,
    }
}
