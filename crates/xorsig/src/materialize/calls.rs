//! The table of calls: begins joined with their ends.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, UInt8Array, UInt32Array, UInt64Array};
use arrow_schema::ArrowError;

use super::names::Names;
use super::schema::Table;
use crate::capture::records::{CallRow, EndRow};

/// A call and its end, if it ended.
#[derive(Clone, Copy)]
pub struct Call {
    begin: CallRow,
    end: Option<EndRow>,
}

/// The calls that have begun and not ended yet.
#[derive(Default)]
pub struct Calls {
    open: HashMap<u64, CallRow>,
}

impl Calls {
    /// Takes the begins and ends of a batch; returns the calls that are complete with it, in the
    /// order in which they began.
    pub fn complete(&mut self, begins: &[CallRow], ends: &[EndRow]) -> Vec<Call> {
        self.open
            .extend(begins.iter().map(|begin| (begin.tick, *begin)));
        // The reader has checked that every end belongs to an open call.
        let ended = ends.iter().filter_map(|end| {
            let begin = self.open.remove(&end.call)?;
            let end = Some(*end);
            Some(Call { begin, end })
        });
        in_order(ended.collect())
    }

    /// The calls that never ended, in the order in which they began.
    pub fn never_ended(self) -> Vec<Call> {
        let begins = self.open.into_values();
        in_order(begins.map(|begin| Call { begin, end: None }).collect())
    }
}

fn in_order(mut calls: Vec<Call>) -> Vec<Call> {
    calls.sort_unstable_by_key(|call| call.begin.tick);
    calls
}

/// The rows of some calls.
pub fn batch(names: &Names, calls: &[Call]) -> Result<RecordBatch, ArrowError> {
    let begins = || calls.iter().map(|call| call.begin);
    let ends = || calls.iter().map(|call| call.end);
    let flags = calls
        .iter()
        .map(|c| c.begin.flags | c.end.map_or(0, |end| end.flags));
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
            names.column(begins().map(|r| r.callee)),
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
            names.optional_column(ends().map(|end| end.map(|r| r.error))),
        ],
    )
}
