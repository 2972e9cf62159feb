//! Texts that are written once per trace and referred to by number.

use std::collections::HashMap;

use ahash::RandomState;

use super::fields::interned;
use super::proto::Message;

/// The three kinds of text that a trace interns.
#[derive(Debug, Default)]
pub struct Interned {
    /// Names of slices.
    pub event_names: Texts<{ interned::EVENT_NAMES }>,
    /// Names of annotations.
    pub annotation_names: Texts<{ interned::DEBUG_ANNOTATION_NAMES }>,
    /// Annotations that are texts.
    pub string_values: Texts<{ interned::DEBUG_ANNOTATION_STRING_VALUES }>,
    /// Entries that no packet has carried yet.
    fresh: Message,
}

/// Numbers of the texts of one kind; `FIELD` is their list in `InternedData`.
#[derive(Debug, Default)]
pub struct Texts<const FIELD: u32> {
    ids: HashMap<String, u64, RandomState>,
}

impl<const FIELD: u32> Texts<FIELD> {
    /// The number of `text`, from 1; a new one is added to `fresh`.
    fn id(&mut self, text: &str, fresh: &mut Message) -> u64 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = self.ids.len() as u64 + 1;
        self.ids.insert(text.to_owned(), id);
        fresh.nested(FIELD, |entry| {
            entry.uint(interned::IID, id);
            entry.text(interned::TEXT, text);
        });
        id
    }
}

impl Interned {
    /// The number of a slice's name.
    pub fn event_name(&mut self, text: &str) -> u64 {
        self.event_names.id(text, &mut self.fresh)
    }

    /// The number of an annotation's name.
    pub fn annotation_name(&mut self, text: &str) -> u64 {
        self.annotation_names.id(text, &mut self.fresh)
    }

    /// The number of an annotation's text.
    pub fn string_value(&mut self, text: &str) -> u64 {
        self.string_values.id(text, &mut self.fresh)
    }

    /// Fills a packet's `InternedData` with the entries that are new since the last packet.
    pub fn take_fresh(&mut self, packet: &mut Message, field: u32) {
        if !self.fresh.bytes().is_empty() {
            packet.nested(field, |data| data.append(&self.fresh));
            self.fresh.clear();
        }
    }
}
