//! What calls did to known parameters and gradients.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use super::hashing::Numbers;
use super::state::Reading;

/// A slot that is spelled and interned once.
#[derive(Debug)]
pub struct Name {
    pub text: String,
    pub id: u32,
}

/// A known parameter or gradient before and after a change; `None` where it was absent.
#[derive(Clone)]
pub struct Effect {
    pub slot: Arc<Name>,
    pub before: Option<Reading>,
    pub after: Option<Reading>,
}

#[derive(Default)]
struct Table {
    effects: Vec<Effect>,
    /// By id of the slot.
    positions: Numbers<u32, usize>,
}

/// Changes by slot, in the order in which they were first seen.
#[pyclass(frozen, module = "xorsig")]
#[derive(Clone, Default)]
pub struct Effects(Arc<Mutex<Table>>);

impl Effects {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change; the value before the first change of a slot stays.
    pub fn add(&self, effect: Effect) {
        self.table().add(effect);
    }

    /// Adds the changes of `later`.
    pub fn merge(&self, later: &Self) {
        if !Arc::ptr_eq(&self.0, &later.0) {
            let (mut table, later) = (self.table(), later.table());
            table.positions.reserve(later.effects.len());
            table.effects.reserve(later.effects.len());
            for effect in &later.effects {
                table.add(effect.clone());
            }
        }
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.table().effects.is_empty()
    }

    /// Hands every change to `write`.
    pub fn each(&self, mut write: impl FnMut(&Effect) -> PyResult<()>) -> PyResult<()> {
        self.table().effects.iter().try_for_each(&mut write)
    }
}

impl Table {
    fn add(&mut self, effect: Effect) {
        match self.positions.get(&effect.slot.id) {
            Some(&position) => self.effects[position].after = effect.after,
            None => {
                self.positions.insert(effect.slot.id, self.effects.len());
                self.effects.push(effect);
            }
        }
    }
}

#[pymethods]
impl Effects {
    fn __len__(&self) -> usize {
        self.table().effects.len()
    }
}
