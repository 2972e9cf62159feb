//! Texts of plain values.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};

/// Distinct numbers and texts that are remembered; a program that counts passes them all.
const MAX_REMEMBERED: usize = 4096;

/// Texts of numbers, flags, names and the like.
pub struct Values {
    integers: HashMap<i64, Arc<str>>,
    floats: HashMap<u64, Arc<str>>,
    texts: HashMap<String, Arc<str>>,
    /// Objects of which there is one each, by address, such as element types.
    single: HashMap<usize, (Py<PyAny>, Arc<str>)>,
    /// Types whose values have one text each.
    kinds: Vec<Py<PyAny>>,
    /// Those of `kinds` whose objects are single.
    single_kinds: Vec<Py<PyAny>>,
    /// Python's `value_text(value)`.
    spell: Py<PyAny>,
}

impl Values {
    /// Knows no value yet.
    pub fn new(kinds: Vec<Py<PyAny>>, single_kinds: Vec<Py<PyAny>>, spell: Py<PyAny>) -> Self {
        Self {
            integers: HashMap::new(),
            floats: HashMap::new(),
            texts: HashMap::new(),
            single: HashMap::new(),
            kinds,
            single_kinds,
            spell,
        }
    }

    /// The text of `value`; `None` if it is not a plain value.
    pub fn text(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Option<Arc<str>>> {
        if let Ok(integer) = value.cast_exact::<PyInt>() {
            return match integer.extract::<i64>() {
                Ok(number) => {
                    let spell = || Ok(number.to_string().into());
                    remembered(&mut self.integers, number, spell).map(Some)
                }
                Err(_) => self.spelled(value).map(Some),
            };
        }
        if let Ok(float) = value.cast_exact::<PyFloat>() {
            let (bits, spell) = (float.value().to_bits(), &self.spell);
            return remembered(&mut self.floats, bits, || spelled(spell, value)).map(Some);
        }
        if let Ok(string) = value.cast_exact::<PyString>() {
            let Ok(plain) = string.to_str() else {
                return self.spelled(value).map(Some);
            };
            if let Some(text) = self.texts.get(plain) {
                return Ok(Some(Arc::clone(text)));
            }
            let spell = &self.spell;
            let key = plain.to_owned();
            return remembered(&mut self.texts, key, || spelled(spell, value)).map(Some);
        }
        let kind = value.get_type_ptr().cast();
        let is_one_of = |kinds: &[Py<PyAny>]| kinds.iter().any(|k| k.as_ptr() == kind);
        let single = value.is_none()
            || value.is_exact_instance_of::<PyBool>()
            || is_one_of(&self.single_kinds);
        if single {
            let address = value.as_ptr() as usize;
            if let Some((_, text)) = self.single.get(&address) {
                return Ok(Some(Arc::clone(text)));
            }
            let text = self.spelled(value)?;
            let entry = (value.clone().unbind(), Arc::clone(&text));
            self.single.insert(address, entry);
            return Ok(Some(text));
        }
        if is_one_of(&self.kinds) {
            return self.spelled(value).map(Some);
        }
        Ok(None)
    }

    /// Whether `value` is an exact `int`, `float` or `bool`.
    pub fn is_number(value: &Bound<'_, PyAny>) -> bool {
        value.is_exact_instance_of::<PyInt>()
            || value.is_exact_instance_of::<PyFloat>()
            || value.is_exact_instance_of::<PyBool>()
    }

    /// What Python's `value_text` says.
    pub fn spelled(&self, value: &Bound<'_, PyAny>) -> PyResult<Arc<str>> {
        spelled(&self.spell, value)
    }
}

fn spelled(spell: &Py<PyAny>, value: &Bound<'_, PyAny>) -> PyResult<Arc<str>> {
    let text = spell.bind(value.py()).call1((value,))?;
    Ok(text.cast::<PyString>()?.to_str()?.into())
}

fn remembered<K: std::hash::Hash + Eq>(
    known: &mut HashMap<K, Arc<str>>,
    key: K,
    spell: impl FnOnce() -> PyResult<Arc<str>>,
) -> PyResult<Arc<str>> {
    if let Some(text) = known.get(&key) {
        return Ok(Arc::clone(text));
    }
    let text = spell()?;
    if known.len() >= MAX_REMEMBERED {
        known.clear();
    }
    known.insert(key, Arc::clone(&text));
    Ok(text)
}
