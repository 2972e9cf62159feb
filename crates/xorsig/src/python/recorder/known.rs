//! Known parameters: their names, and what calls do to them and to their gradients.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyWeakrefReference};

use super::effects::{Effect, Effects};
use super::state::{Reading, State};

/// Version counter and address, as far as a tensor has them.
type Key = (i64, usize);
/// Identity, version counter and address of a gradient; zeros without one.
type GradientKey = (usize, i64, usize);

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
/// A reading is kept with the identity, version counter and address that it was taken at, so that
/// nothing is kept alive.
struct Entry {
    identity: usize,
    owner: Py<PyWeakrefReference>,
    place: Place,
    name: String,
    by_position: bool,
    key: Key,
    reading: Reading,
    gradient_key: GradientKey,
    gradient: Option<Reading>,
}

/// Parameters seen in called modules and stepped optimizers, by identity: names change after
/// construction or resizing, and two modules may share one parameter.
#[derive(Default)]
pub struct Known {
    entries: Vec<Entry>,
    by_identity: HashMap<usize, usize>,
}

/// Where a parameter was met.
pub struct Met<'a, 'py> {
    /// Its name there.
    pub name: &'a str,
    /// The module that holds it itself, or an optimizer, or the tensor where neither does.
    pub owner: &'a Bound<'py, PyAny>,
    /// Its place there.
    pub place: Place,
}

impl Entry {
    /// The parameter; `None` once its owner is gone or holds another one instead.
    fn find<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
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
                match fields.cast_exact::<PyDict>() {
                    Ok(fields) => fields.get_item(name)?,
                    Err(_) => Some(fields.call_method1(intern!(py, "get"), (name,))?),
                }
            }
            Place::Group(group, index) => owner
                .getattr(intern!(py, "param_groups"))
                .and_then(|groups| groups.get_item(*group))
                .and_then(|group| group.get_item(intern!(py, "params")))
                .and_then(|parameters| parameters.get_item(*index))
                .ok(),
        };
        Ok(found.filter(|found| found.as_ptr() as usize == self.identity))
    }
}

impl Known {
    /// Position of a parameter that is known and still where it was.
    fn position(&self, parameter: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let Some(&position) = self.by_identity.get(&(parameter.as_ptr() as usize)) else {
            return Ok(None);
        };
        let found = self.entries[position].find(parameter.py())?;
        Ok(found.filter(|found| found.is(parameter)).map(|_| position))
    }

    /// Remembers a parameter; of several names the longest is kept, and one by position only
    /// until there is another.
    ///
    /// Returns its position, and whether it is new.
    pub fn learn(
        &mut self,
        state: &mut State,
        parameter: &Bound<'_, PyAny>,
        met: Met<'_, '_>,
    ) -> PyResult<(usize, bool)> {
        let by_position = matches!(met.place, Place::Group(..));
        if let Some(position) = self.position(parameter)? {
            let entry = &mut self.entries[position];
            if !by_position && (entry.by_position || met.name.len() > entry.name.len()) {
                met.name.clone_into(&mut entry.name);
                entry.by_position = false;
            }
            return Ok((position, false));
        }
        let identity = parameter.as_ptr() as usize;
        let (gradient_key, gradient) = state.gradient_of(parameter)?;
        let entry = Entry {
            identity,
            owner: PyWeakrefReference::new(met.owner)?.unbind(),
            place: met.place,
            name: met.name.to_owned(),
            by_position,
            key: state.key(parameter)?,
            reading: state.reading(parameter)?,
            gradient_key,
            gradient,
        };
        let position = match self.by_identity.get(&identity) {
            Some(&position) => {
                self.entries[position] = entry;
                position
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        self.by_identity.insert(identity, position);
        Ok((position, true))
    }

    /// The fingerprint of a parameter, learnt if it is new.
    ///
    /// Without `fresh` the last one is taken if version and address are unchanged. Version
    /// counters miss writes through `.data` and numpy, so only a module called from within
    /// another module's call, which has just read it, may do without.
    pub fn read(
        &mut self,
        state: &mut State,
        parameter: &Bound<'_, PyAny>,
        met: Met<'_, '_>,
        fresh: bool,
    ) -> PyResult<Reading> {
        let (position, new) = self.learn(state, parameter, met)?;
        let entry = &mut self.entries[position];
        if !new {
            let key = state.key(parameter)?;
            if fresh || entry.key != key {
                entry.key = key;
                entry.reading = state.reading(parameter)?;
            }
        }
        Ok(Arc::clone(&entry.reading))
    }

    /// The longest known name; `None` for a parameter never seen.
    pub fn name(&self, parameter: &Bound<'_, PyAny>) -> PyResult<Option<&str>> {
        let position = self.position(parameter)?;
        Ok(position.map(|position| self.entries[position].name.as_str()))
    }

    /// Gathers the records of the gradients of all known parameters, `None` where there is none.
    ///
    /// The bytes are read again: `parameter.grad.data` can be written without a trace.
    pub fn record_gradients(
        &mut self,
        state: &mut State,
        py: Python<'_>,
        role: u8,
    ) -> PyResult<()> {
        for entry in &mut self.entries {
            let Some(parameter) = entry.find(py)? else {
                continue;
            };
            if state.torch.accessors.requires_grad(&parameter)? {
                (entry.gradient_key, entry.gradient) = state.gradient_of(&parameter)?;
                let slot = format!("grad.param.{}", entry.name);
                state.gather(py, role, &slot, entry.gradient.as_ref())?;
            }
        }
        Ok(())
    }

    /// Parameters and gradients that changed since the last look, by slot.
    pub fn changes(&mut self, state: &mut State, py: Python<'_>) -> PyResult<Effects> {
        let mut found = Effects::default();
        let mut gone = false;
        for entry in &mut self.entries {
            let Some(parameter) = entry.find(py)? else {
                entry.identity = 0;
                gone = true;
                continue;
            };
            let key = state.key(&parameter)?;
            if entry.key != key {
                entry.key = key;
                note_parameter(entry, state, &parameter, &mut found)?;
            }
            let key = state.gradient_key(&parameter)?;
            if entry.gradient_key != key {
                note_gradient(entry, state, &parameter, &mut found)?;
            }
        }
        if gone {
            self.entries.retain(|entry| entry.identity != 0);
            let positions = self.entries.iter().enumerate();
            self.by_identity = positions.map(|(i, entry)| (entry.identity, i)).collect();
        }
        Ok(found)
    }

    /// Known parameters and gradients that share memory with one of `tensors`, just changed by a
    /// call.
    ///
    /// A write through `parameter.data`, `parameter.grad.data` or `detach()` moves no version
    /// counter of what it changes; the memory tells.
    pub fn alias_changes(
        &mut self,
        state: &mut State,
        py: Python<'_>,
        tensors: &[Bound<'_, PyAny>],
    ) -> PyResult<Effects> {
        let mut found = Effects::default();
        let mut storages = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            storages.push((state.storage(tensor)?, tensor));
        }
        storages.retain(|(storage, _)| *storage != 0);
        if storages.is_empty() {
            return Ok(found);
        }
        let shares = |own: &Bound<'_, PyAny>, storage: usize| {
            let mut all = storages.iter();
            all.any(|(other, tensor)| *other == storage && !own.is(*tensor))
        };
        for entry in &mut self.entries {
            let Some(parameter) = entry.find(py)? else {
                continue;
            };
            if shares(&parameter, state.storage(&parameter)?) {
                entry.key = state.key(&parameter)?;
                note_parameter(entry, state, &parameter, &mut found)?;
            }
            let Some(gradient) = state.torch.accessors.gradient(&parameter)? else {
                continue;
            };
            if shares(&gradient, state.storage(&gradient)?) {
                note_gradient(entry, state, &parameter, &mut found)?;
            }
        }
        Ok(found)
    }
}

fn note_parameter(
    entry: &mut Entry,
    state: &mut State,
    parameter: &Bound<'_, PyAny>,
    found: &mut Effects,
) -> PyResult<()> {
    let after = state.reading(parameter)?;
    let before = std::mem::replace(&mut entry.reading, Arc::clone(&after));
    if !same_bytes(Some(&before), Some(&after)) {
        let (before, after) = (Some(before), Some(after));
        found.add(format!("param.{}", entry.name), Effect { before, after });
    }
    Ok(())
}

fn note_gradient(
    entry: &mut Entry,
    state: &mut State,
    parameter: &Bound<'_, PyAny>,
    found: &mut Effects,
) -> PyResult<()> {
    let (key, after) = state.gradient_of(parameter)?;
    entry.gradient_key = key;
    let before = std::mem::replace(&mut entry.gradient, after.clone());
    if !same_bytes(before.as_ref(), after.as_ref()) {
        let slot = format!("grad.param.{}", entry.name);
        found.add(slot, Effect { before, after });
    }
    Ok(())
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

impl State {
    /// Version counter and address of a tensor; (-1, 0) where it has none.
    fn key(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<Key> {
        if let Some(address) = self.reader.address(tensor)? {
            // Tensors made in inference mode have no version counter.
            if let Ok(version) = self.torch.accessors.version(tensor) {
                return Ok((version, address));
            }
        }
        let py = tensor.py();
        let key = self
            .python_reader
            .call_method1(py, intern!(py, "key"), (tensor,))?;
        key.extract(py)
    }

    fn gradient_key(&mut self, parameter: &Bound<'_, PyAny>) -> PyResult<GradientKey> {
        match self.torch.accessors.gradient(parameter)? {
            None => Ok((0, 0, 0)),
            Some(gradient) => {
                let (version, address) = self.key(&gradient)?;
                Ok((gradient.as_ptr() as usize, version, address))
            }
        }
    }

    /// The gradient's key and reading.
    fn gradient_of(
        &mut self,
        parameter: &Bound<'_, PyAny>,
    ) -> PyResult<(GradientKey, Option<Reading>)> {
        let key = self.gradient_key(parameter)?;
        let gradient = self.torch.accessors.gradient(parameter)?;
        let reading = gradient
            .map(|gradient| self.reading(&gradient))
            .transpose()?;
        Ok((key, reading))
    }

    /// Address of the memory behind a tensor; 0 for one without.
    fn storage(&self, tensor: &Bound<'_, PyAny>) -> PyResult<usize> {
        let py = tensor.py();
        let address = self
            .python_reader
            .call_method1(py, intern!(py, "storage"), (tensor,))?;
        address.extract(py)
    }
}

impl Known {
    /// ``(group, name, parameter)`` of an optimizer; parameters never seen are learnt by position.
    pub fn members<'py>(
        &mut self,
        state: &mut State,
        optimizer: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<(usize, String, Bound<'py, PyAny>)>> {
        let py = optimizer.py();
        let mut members = Vec::new();
        let groups = optimizer.getattr(intern!(py, "param_groups"))?;
        for (group, entry) in groups.try_iter()?.enumerate() {
            let parameters = entry?.get_item(intern!(py, "params"))?;
            for (index, parameter) in parameters.try_iter()?.enumerate() {
                let parameter = parameter?;
                let name = match self.name(&parameter)? {
                    Some(name) => name.to_owned(),
                    None => {
                        let name = format!("group[{group}][{index}]");
                        let met = Met {
                            name: &name,
                            owner: optimizer,
                            place: Place::Group(group, index),
                        };
                        self.learn(state, &parameter, met)?;
                        name
                    }
                };
                members.push((group, name, parameter));
            }
        }
        Ok(members)
    }
}
