//! The table of calls: begins joined with their ends.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, StringArray, UInt8Array, UInt32Array, UInt64Array};
use arrow_schema::ArrowError;

use super::names::Names;
use super::schema::Table;
use crate::capture::records::{CallRow, EndRow};

/// Calls written together.
const CHUNK_ROWS: usize = 1 << 16;

/// A call and its end, if it ended.
#[derive(Clone, Copy)]
pub struct Call {
    begin: CallRow,
    end: Option<EndRow>,
}

/// Calls in the order in which they began.
#[derive(Default)]
pub struct Calls {
    rows: Vec<Call>,
    /// Index in `rows` of each call that has not ended.
    open: HashMap<u64, usize>,
}

impl Calls {
    /// Adds the begins and ends of a batch.
    pub fn add(&mut self, begins: &[CallRow], ends: &[EndRow]) {
        for begin in begins {
            self.open.insert(begin.tick, self.rows.len());
            self.rows.push(Call {
                begin: *begin,
                end: None,
            });
        }
        // The reader has checked that every end belongs to an open call.
        for end in ends {
            if let Some(index) = self.open.remove(&end.call) {
                self.rows[index].end = Some(*end);
            }
        }
    }

    /// All calls, in pieces.
    pub fn chunks(&self) -> impl Iterator<Item = &[Call]> {
        self.rows.chunks(CHUNK_ROWS)
    }
}

/// The rows of a piece.
pub fn batch(names: &Names, calls: &[Call]) -> Result<RecordBatch, ArrowError> {
    let begins = || calls.iter().map(|call| call.begin);
    let ends = || calls.iter().map(|call| call.end);
    let flags = calls
        .iter()
        .map(|c| c.begin.flags | c.end.map_or(0, |end| end.flags));
    let errors = ends().map(|end| end.and_then(|end| names.optional(end.error)));
    RecordBatch::try_new(
        Table::Calls.schema(),
        vec![
            Arc::new(UInt64Array::from_iter_values(begins().map(|r| r.tick))),
            Arc::new(UInt64Array::from_iter_values(begins().map(|r| r.parent))),
            Arc::new(UInt32Array::from_iter_values(begins().map(|r| r.site))),
            Arc::new(Int64Array::from_iter_values(begins().map(|r| r.step))),
            Arc::new(UInt8Array::from_iter_values(begins().map(|r| r.phase))),
            Arc::new(UInt32Array::from_iter_values(begins().map(|r| r.thread))),
            Arc::new(UInt32Array::from_iter_values(flags)),
            Arc::new(StringArray::from_iter_values(
                begins().map(|r| names.text(r.callee)),
            )),
            Arc::new(UInt64Array::from_iter_values(begins().map(|r| r.tick))),
            Arc::new(UInt64Array::from_iter_values(begins().map(|r| r.time_ns))),
            Arc::new(UInt64Array::from_iter(
                ends().map(|end| end.map(|r| r.tick)),
            )),
            Arc::new(UInt64Array::from_iter(
                ends().map(|end| end.map(|r| r.time_ns)),
            )),
            Arc::new(UInt8Array::from_iter(
                ends().map(|end| end.map(|r| r.status)),
            )),
            Arc::new(StringArray::from_iter(errors)),
        ],
    )
}
