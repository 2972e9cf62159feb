//! The names and layouts of a capture, by id.

use crate::capture::records::LayoutRow;

/// Names and layouts defined so far. The reader has checked that every id is defined.
pub struct Names {
    texts: Vec<String>,
    layouts: Vec<LayoutRow>,
}

impl Default for Names {
    /// Only the empty name, which has id 0.
    fn default() -> Self {
        Self {
            texts: vec![String::new()],
            layouts: Vec::new(),
        }
    }
}

impl Names {
    /// Adds what a batch defines.
    pub fn define(&mut self, texts: Vec<String>, layouts: Vec<LayoutRow>) {
        self.texts.extend(texts);
        self.layouts.extend(layouts);
    }

    /// The text of a name.
    pub fn text(&self, id: u32) -> &str {
        &self.texts[id as usize]
    }

    /// The text of a name, or `None` for the empty one.
    pub fn optional(&self, id: u32) -> Option<&str> {
        (id != 0).then(|| self.text(id))
    }

    /// A layout.
    pub fn layout(&self, id: u32) -> &LayoutRow {
        &self.layouts[id as usize]
    }
}
