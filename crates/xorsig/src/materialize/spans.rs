//! The table of spans: equal spans added up.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Int32Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::ArrowError;

use super::names::Names;
use super::schema::Table;
use crate::capture::records::SpanRow;

/// What makes two spans the same: file, function, position, operator.
type Key = (u32, u32, [i32; 4], u32);

/// Spans in the order in which they were first seen.
#[derive(Default)]
pub struct Spans {
    rows: Vec<SpanRow>,
    index: HashMap<Key, usize>,
}

impl Spans {
    /// Adds the spans of a batch: counts add up, flags join, the first example stays.
    pub fn add(&mut self, spans: &[SpanRow]) {
        for span in spans {
            let key = (span.file, span.qualname, span.position, span.operator);
            let index = *self.index.entry(key).or_insert(self.rows.len());
            match self.rows.get_mut(index) {
                None => self.rows.push(*span),
                Some(row) => {
                    row.count = row.count.saturating_add(span.count);
                    row.flags |= span.flags;
                    if row.example == 0 {
                        row.example = span.example;
                    }
                }
            }
        }
    }

    /// All rows.
    pub fn batch(&self, names: &Names) -> Result<RecordBatch, ArrowError> {
        let rows = || self.rows.iter();
        let text = |id: fn(&SpanRow) -> u32| {
            Arc::new(StringArray::from_iter_values(
                rows().map(|r| names.text(id(r))),
            ))
        };
        let position =
            |i: usize| Arc::new(Int32Array::from_iter_values(rows().map(|r| r.position[i])));
        RecordBatch::try_new(
            Table::Spans.schema(),
            vec![
                text(|r| r.file),
                text(|r| r.qualname),
                position(0),
                position(1),
                position(2),
                position(3),
                text(|r| r.operator),
                Arc::new(UInt64Array::from_iter_values(rows().map(|r| r.count))),
                Arc::new(UInt32Array::from_iter_values(rows().map(|r| r.flags))),
                text(|r| r.example),
            ],
        )
    }
}
