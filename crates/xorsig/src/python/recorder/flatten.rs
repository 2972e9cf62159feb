//! Slots of plain arguments and results.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use super::reading::Reader;
use super::sink::Sink;
use super::slots::{Slot, Slots};
use super::values::Values;

const MAX_DEPTH: usize = 6;
/// Containers with more items than this are left to the Python code.
const MAX_ITEMS: usize = 64;
/// Arguments with more slots than this are left to the Python code.
const MAX_SLOTS: usize = 1024;
/// From this many numbers on a sequence is one value.
const MANY_NUMBERS: usize = 9;

/// What is inside arguments or results, in order.
#[derive(Default)]
pub struct Found<'py> {
    pub tensors: Vec<(Slot, Bound<'py, PyAny>)>,
    /// Id of the slot, and the text.
    pub values: Vec<(u32, Arc<str>)>,
    /// Spelling of the slot, and the module.
    pub modules: Vec<(String, Bound<'py, PyAny>)>,
    pub optimizers: Vec<Bound<'py, PyAny>>,
}

/// Slots and items of what Python's `flatten` found: tensors, values, modules, optimizers.
type Flattened<'py> = (
    Vec<(String, Bound<'py, PyAny>)>,
    Vec<(String, String)>,
    Vec<(String, Bound<'py, PyAny>)>,
    Vec<Bound<'py, PyAny>>,
);

impl<'py> Found<'py> {
    /// From what Python's `flatten` found.
    pub fn from_python(
        flattened: &Bound<'py, PyAny>,
        slots: &mut Slots,
        sink: &Sink,
    ) -> PyResult<Self> {
        let py = flattened.py();
        let (tensors, values, modules, optimizers) = flattened.extract::<Flattened<'py>>()?;
        let named = |(slot, tensor): (String, Bound<'py, PyAny>)| (slots.named(&slot), tensor);
        let tensors = tensors.into_iter().map(named).collect();
        let values = values.into_iter();
        let values = values.map(|(slot, text)| Ok((sink.name(py, &slot)?, text.into())));
        Ok(Self {
            tensors,
            values: values.collect::<PyResult<_>>()?,
            modules,
            optimizers,
        })
    }
}

/// What flattening needs.
pub struct Flattener<'a> {
    pub slots: &'a mut Slots,
    pub values: &'a mut Values,
    pub reader: &'a Reader,
    pub sink: &'a Sink,
}

impl Flattener<'_> {
    /// Sorts `item` into `found`; `false` if it holds anything but tensors of exact types, plain
    /// values, and lists, tuples and dictionaries of them.
    pub fn flatten<'py>(
        &mut self,
        item: &Bound<'py, PyAny>,
        slot: Slot,
        depth: usize,
        found: &mut Found<'py>,
    ) -> PyResult<bool> {
        let py = item.py();
        if found.tensors.len() + found.values.len() >= MAX_SLOTS {
            return Ok(false);
        }
        if self.reader.is_tensor(item) {
            found.tensors.push((slot, item.clone()));
            return Ok(true);
        }
        if let Some(text) = self.values.text(item)? {
            let id = self.slots.value_id(py, slot, self.sink)?;
            found.values.push((id, text));
            return Ok(true);
        }
        if depth >= MAX_DEPTH {
            return Ok(false);
        }
        if let Ok(items) = item.cast_exact::<PyTuple>() {
            return self.sequence(item, items.iter().collect(), slot, depth, found);
        }
        if let Ok(items) = item.cast_exact::<PyList>() {
            return self.sequence(item, items.iter().collect(), slot, depth, found);
        }
        if let Ok(items) = item.cast_exact::<PyDict>() {
            if items.len() > MAX_ITEMS {
                return Ok(false);
            }
            for (key, value) in items.iter() {
                let Ok(key) = key.cast_exact::<PyString>() else {
                    return Ok(false);
                };
                let Ok(key) = key.to_str() else {
                    return Ok(false);
                };
                let slot = self.slots.key(slot, key);
                if !self.flatten(&value, slot, depth + 1, found)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        Ok(false)
    }

    fn sequence<'py>(
        &mut self,
        item: &Bound<'py, PyAny>,
        items: Vec<Bound<'py, PyAny>>,
        slot: Slot,
        depth: usize,
        found: &mut Found<'py>,
    ) -> PyResult<bool> {
        if items.len() >= MANY_NUMBERS && items.iter().all(Values::is_number) {
            let text = self.values.spelled(item)?;
            let id = self.slots.value_id(item.py(), slot, self.sink)?;
            found.values.push((id, text));
            return Ok(true);
        }
        if items.len() > MAX_ITEMS {
            return Ok(false);
        }
        for (index, item) in items.iter().enumerate() {
            let slot = self.slots.item(slot, index);
            if !self.flatten(item, slot, depth + 1, found)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
