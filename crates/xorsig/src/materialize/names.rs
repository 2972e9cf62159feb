//! The names of a capture, by id.

use std::sync::Arc;

use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, DictionaryArray, StringArray, UInt32Array};

/// Names defined so far. The reader has checked that every id is defined.
pub struct Names {
    texts: Vec<String>,
    /// The same texts as an array, which dictionaries share.
    array: StringArray,
}

impl Default for Names {
    /// Only the empty name, which has id 0.
    fn default() -> Self {
        let texts = vec![String::new()];
        Self {
            array: StringArray::from_iter_values(&texts),
            texts,
        }
    }
}

impl Names {
    /// Adds what a batch defines.
    pub fn define(&mut self, texts: Vec<String>) {
        if !texts.is_empty() {
            self.texts.extend(texts);
            self.array = StringArray::from_iter_values(&self.texts);
        }
    }

    /// The text of a name.
    pub fn text(&self, id: u32) -> &str {
        &self.texts[id as usize]
    }

    /// All texts by id.
    pub fn array(&self) -> &StringArray {
        &self.array
    }

    /// A column of names.
    pub fn column(&self, ids: impl Iterator<Item = u32>) -> ArrayRef {
        let keys = UInt32Array::from_iter_values(ids);
        let texts = Arc::new(self.array.clone());
        Arc::new(DictionaryArray::<UInt32Type>::new(keys, texts))
    }
}
