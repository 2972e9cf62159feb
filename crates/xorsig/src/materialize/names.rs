//! The names of a capture, by id.

use std::sync::Arc;

use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, DictionaryArray, StringArray, UInt32Array};

use crate::capture::error::CaptureError;

/// Bytes of an array of texts, whose offsets are i32.
const MOST_BYTES: usize = i32::MAX as usize;

/// Names defined so far. The reader has checked that every id is defined.
pub struct Names {
    texts: Vec<String>,
    /// Bytes of the texts.
    bytes: usize,
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
            bytes: 0,
        }
    }
}

impl Names {
    /// Adds what a batch defines.
    ///
    /// # Errors
    /// [`CaptureError::Invalid`] for more bytes than an array of texts can have.
    pub fn define(&mut self, texts: Vec<String>) -> Result<(), CaptureError> {
        if texts.is_empty() {
            return Ok(());
        }
        self.bytes += texts.iter().map(String::len).sum::<usize>();
        if self.bytes > MOST_BYTES {
            let reason = format!("the names have more than {MOST_BYTES} bytes");
            return Err(CaptureError::Invalid(reason));
        }
        self.texts.extend(texts);
        self.array = StringArray::from_iter_values(&self.texts);
        Ok(())
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
