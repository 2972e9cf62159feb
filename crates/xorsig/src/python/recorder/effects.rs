//! What calls did to known parameters and gradients.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use super::state::Reading;

/// A known parameter or gradient before and after a change; `None` where it was absent.
#[derive(Clone)]
pub struct Effect {
    pub before: Option<Reading>,
    pub after: Option<Reading>,
}

#[derive(Default)]
struct Table {
    effects: Vec<(String, Effect)>,
    by_slot: HashMap<String, usize>,
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
    pub fn add(&self, slot: String, effect: Effect) {
        let table = &mut *self.table();
        match table.by_slot.get(&slot) {
            Some(&position) => table.effects[position].1.after = effect.after,
            None => {
                table.by_slot.insert(slot.clone(), table.effects.len());
                table.effects.push((slot, effect));
            }
        }
    }

    /// Adds the changes of `later`.
    pub fn merge(&self, later: &Self) {
        if !Arc::ptr_eq(&self.0, &later.0) {
            for (slot, effect) in later.list() {
                self.add(slot, effect);
            }
        }
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.table().effects.is_empty()
    }

    /// Every change.
    pub fn list(&self) -> Vec<(String, Effect)> {
        self.table().effects.clone()
    }
}

#[pymethods]
impl Effects {
    fn __len__(&self) -> usize {
        self.table().effects.len()
    }
}
