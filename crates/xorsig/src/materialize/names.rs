//! The names of a capture, by id.

use std::sync::Arc;

use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, DictionaryArray, StringArray, UInt32Array};

/// Names defined so far. The reader has checked that every id is defined.
pub struct Names {
    texts: Vec<String>,
    /// The same texts as an array, which dictionaries share.
    array: ArrayRef,
}

impl Default for Names {
    /// Only the empty name, which has id 0.
    fn default() -> Self {
        let texts = vec![String::new()];
        Self {
            array: Arc::new(StringArray::from_iter_values(&texts)),
            texts,
        }
    }
}

impl Names {
    /// Adds what a batch defines.
    pub fn define(&mut self, texts: Vec<String>) {
        if !texts.is_empty() {
            self.texts.extend(texts);
            self.array = Arc::new(StringArray::from_iter_values(&self.texts));
        }
    }

    /// The text of a name.
    pub fn text(&self, id: u32) -> &str {
        &self.texts[id as usize]
    }

    /// A column of names.
    pub fn column(&self, ids: impl Iterator<Item = u32>) -> ArrayRef {
        self.dictionary(UInt32Array::from_iter_values(ids))
    }

    /// A column of names, null for `None` and for the empty name.
    pub fn optional_column(&self, ids: impl Iterator<Item = Option<u32>>) -> ArrayRef {
        self.dictionary(UInt32Array::from_iter(
            ids.map(|id| id.filter(|id| *id != 0)),
        ))
    }

    /// A column of names by their ids.
    pub fn dictionary(&self, keys: UInt32Array) -> ArrayRef {
        Arc::new(DictionaryArray::<UInt32Type>::new(
            keys,
            Arc::clone(&self.array),
        ))
    }
}
