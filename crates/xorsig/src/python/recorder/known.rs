//! Known parameters: their names, and what calls do to them and to their gradients.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;

use super::effects::Effects;
use super::entry::{Entry, LastOwner, Names, Place};
use super::hashing::Numbers;
use super::look::Seen;
use super::state::{Reading, State};

/// Parameters seen in called modules and stepped optimizers, by identity: names change after
/// construction or resizing, and two modules may share one parameter.
#[derive(Default)]
pub struct Known {
    entries: Vec<Entry>,
    by_identity: Numbers<usize, usize>,
    /// Whether some are of a kind that may bring code of its own.
    unusual: bool,
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

impl Known {
    /// Whether some parameters are of a kind that may bring code of its own, so that they are only
    /// looked at within the guard against it.
    pub fn is_unusual(&self) -> bool {
        self.unusual
    }

    /// Position of a parameter that is known and still where it was.
    fn position<'py>(
        &self,
        parameter: &Bound<'py, PyAny>,
        last: &mut LastOwner<'py>,
    ) -> PyResult<Option<usize>> {
        let Some(&position) = self.by_identity.get(&(parameter.as_ptr() as usize)) else {
            return Ok(None);
        };
        let entry = &self.entries[position];
        let found = entry.find(parameter.py(), last)?;
        Ok(found.filter(|found| found.is(parameter)).map(|_| position))
    }

    /// Remembers a parameter; of several names the longest is kept, and one by position only
    /// until there is another.
    ///
    /// Returns its position, and whether it is new.
    fn learn<'py>(
        &mut self,
        state: &mut State,
        parameter: &Bound<'py, PyAny>,
        met: Met<'_, '_>,
        last: &mut LastOwner<'py>,
    ) -> PyResult<(usize, bool)> {
        let py = parameter.py();
        let by_position = matches!(met.place, Place::Group(..));
        if let Some(position) = self.position(parameter, last)? {
            let entry = &mut self.entries[position];
            let longer = met.name.len() > entry.names.name.len();
            if !by_position && (entry.by_position || longer) {
                entry.names = Names::new(state, py, met.name)?;
                entry.by_position = false;
            }
            return Ok((position, false));
        }
        let identity = parameter.as_ptr() as usize;
        self.unusual |= !state.reader.is_tensor(parameter);
        let look = state.look(parameter)?;
        let mut entry = Entry {
            identity,
            owner: PyWeakrefReference::new(met.owner)?.unbind(),
            place: met.place,
            names: Names::new(state, py, met.name)?,
            by_position,
            seen: Seen::default(),
            reading: Reading::default(),
            gradient_seen: Seen::default(),
            gradient: None,
        };
        entry.read_parameter(state, parameter, look.key)?;
        entry.read_gradient(state, parameter, look.gradient_key)?;
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

    /// The fingerprint of a parameter, learnt if it is new, and its slots.
    ///
    /// Without `fresh` the last one is taken if version and memory are unchanged. Version
    /// counters miss writes through `.data` and numpy, so only a module called from within
    /// another module's call, which has just read it, may do without.
    ///
    /// `last` is that of one loop over parameters, during which no code of the workload runs.
    pub fn read<'py>(
        &mut self,
        state: &mut State,
        parameter: &Bound<'py, PyAny>,
        met: Met<'_, '_>,
        fresh: bool,
        last: &mut LastOwner<'py>,
    ) -> PyResult<(Reading, Arc<Names>)> {
        let (position, new) = self.learn(state, parameter, met, last)?;
        let entry = &mut self.entries[position];
        if !new {
            let key = state.look(parameter)?.key;
            if fresh || entry.seen.differs(key) {
                entry.read_parameter(state, parameter, key)?;
            }
        }
        Ok((Arc::clone(&entry.reading), Arc::clone(&entry.names)))
    }

    /// The slots of a parameter, by its longest known name; `None` for one never seen.
    fn names<'py>(
        &self,
        parameter: &Bound<'py, PyAny>,
        last: &mut LastOwner<'py>,
    ) -> PyResult<Option<Arc<Names>>> {
        let position = self.position(parameter, last)?;
        Ok(position.map(|position| Arc::clone(&self.entries[position].names)))
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
        let mut last = LastOwner::default();
        for entry in &mut self.entries {
            let Some(parameter) = entry.find(py, &mut last)? else {
                continue;
            };
            if state.torch.accessors.requires_grad(&parameter)? {
                let key = state.look(&parameter)?.gradient_key;
                entry.read_gradient(state, &parameter, key)?;
                state.gather_named(
                    py,
                    role,
                    &entry.names.gradient,
                    entry.gradient.as_ref(),
                    None,
                )?;
            }
        }
        Ok(())
    }

    /// Parameters and gradients that changed since the last look, by slot.
    pub fn changes(&mut self, state: &mut State, py: Python<'_>) -> PyResult<Effects> {
        let found = Effects::default();
        let mut gone = false;
        let mut unusual = false;
        let mut last = LastOwner::default();
        for entry in &mut self.entries {
            let Some(parameter) = entry.find(py, &mut last)? else {
                entry.identity = 0;
                gone = true;
                continue;
            };
            unusual |= !state.reader.is_tensor(&parameter);
            let look = state.look(&parameter)?;
            if entry.seen.differs(look.key) {
                entry.note_parameter(state, &parameter, look.key, &found)?;
            }
            if entry.gradient_seen.differs(look.gradient_key) {
                entry.note_gradient(state, &parameter, look.gradient_key, &found)?;
            }
        }
        self.unusual = unusual;
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
        found: &Effects,
    ) -> PyResult<()> {
        let mut storages = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            storages.push((state.storage(tensor)?, tensor));
        }
        storages.retain(|(storage, _)| *storage != 0);
        if storages.is_empty() {
            return Ok(());
        }
        let shares = |own: &Bound<'_, PyAny>, storage: usize| {
            let mut all = storages.iter();
            all.any(|(other, tensor)| *other == storage && !own.is(*tensor))
        };
        let mut last = LastOwner::default();
        for entry in &mut self.entries {
            let Some(parameter) = entry.find(py, &mut last)? else {
                continue;
            };
            if shares(&parameter, state.storage(&parameter)?) {
                let key = state.look(&parameter)?.key;
                entry.note_parameter(state, &parameter, key, found)?;
            }
            let Some(gradient) = state.torch.accessors.gradient(&parameter)? else {
                continue;
            };
            if shares(&gradient, state.storage(&gradient)?) {
                let key = state.look(&parameter)?.gradient_key;
                entry.note_gradient(state, &parameter, key, found)?;
            }
        }
        Ok(())
    }

    /// Group, slots and parameter of each of an optimizer; one never seen is learnt by position.
    pub fn members<'py>(
        &mut self,
        state: &mut State,
        optimizer: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Member<'py>>> {
        let py = optimizer.py();
        let mut members = Vec::new();
        let mut last = LastOwner::default();
        let groups = optimizer.getattr(intern!(py, "param_groups"))?;
        for (group, entry) in groups.try_iter()?.enumerate() {
            let parameters = entry?.get_item(intern!(py, "params"))?;
            for (index, parameter) in parameters.try_iter()?.enumerate() {
                let parameter = parameter?;
                let names = match self.names(&parameter, &mut last)? {
                    Some(names) => names,
                    None => {
                        let met = Met {
                            name: &format!("group[{group}][{index}]"),
                            owner: optimizer,
                            place: Place::Group(group, index),
                        };
                        let (position, _) = self.learn(state, &parameter, met, &mut last)?;
                        Arc::clone(&self.entries[position].names)
                    }
                };
                let tensor = parameter;
                members.push(Member {
                    group,
                    names,
                    tensor,
                });
            }
        }
        Ok(members)
    }
}

/// A parameter of an optimizer.
pub struct Member<'py> {
    /// Number of its group.
    pub group: usize,
    pub names: Arc<Names>,
    pub tensor: Bound<'py, PyAny>,
}
