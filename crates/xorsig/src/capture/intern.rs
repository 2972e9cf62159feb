//! Ids of names and layouts, the same for a whole capture.

use std::collections::HashMap;

use super::records::{LayoutRow, Records};

/// The names and layouts that a writer has given an id.
#[derive(Debug)]
pub struct Interner {
    names: HashMap<String, u32>,
    layouts: HashMap<LayoutRow, u32>,
}

impl Default for Interner {
    /// Only the empty name, which has id 0.
    fn default() -> Self {
        Self {
            names: HashMap::from([(String::new(), 0)]),
            layouts: HashMap::new(),
        }
    }
}

impl Interner {
    /// The id of `text`; a new one is defined in `batch`. `None` when ids are used up.
    pub fn name(&mut self, text: &str, batch: &mut Records) -> Option<u32> {
        if let Some(id) = self.names.get(text) {
            return Some(*id);
        }
        let id = u32::try_from(self.names.len()).ok()?;
        if batch.names.is_empty() {
            batch.first_name = id;
        }
        batch.names.push(text.to_owned());
        self.names.insert(text.to_owned(), id);
        Some(id)
    }

    /// The id of `layout`; a new one is defined in `batch`. `None` when ids are used up.
    pub fn layout(&mut self, layout: LayoutRow, batch: &mut Records) -> Option<u32> {
        if let Some(id) = self.layouts.get(&layout) {
            return Some(*id);
        }
        let id = u32::try_from(self.layouts.len()).ok()?;
        if batch.layouts.is_empty() {
            batch.first_layout = id;
        }
        batch.layouts.push(layout.clone());
        self.layouts.insert(layout, id);
        Some(id)
    }

    /// Number of names, the empty one included.
    pub fn name_count(&self) -> u32 {
        self.names.len() as u32
    }

    /// Number of layouts.
    pub fn layout_count(&self) -> u32 {
        self.layouts.len() as u32
    }
}
