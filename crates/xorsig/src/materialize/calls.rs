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
        // Most calls end in the batch in which they began: those are found by their place.
        let first = begins.first().map_or(u64::MAX, |begin| begin.tick);
        let last = begins.last().map_or(0, |begin| begin.tick);
        let mut places = vec![usize::MAX; last.saturating_sub(first) as usize + 1];
        for (place, begin) in begins.iter().enumerate() {
            places[(begin.tick - first) as usize] = place;
        }
        let mut here = vec![None; begins.len()];
        let mut complete = Vec::with_capacity(ends.len());
        // The reader has checked that every end belongs to an open call.
        for end in ends {
            let place = end.call.checked_sub(first).map(|index| index as usize);
            match place.and_then(|index| places.get(index)) {
                Some(place) => here
                    .get_mut(*place)
                    .into_iter()
                    .for_each(|at| *at = Some(*end)),
                None => complete.extend(self.open.remove(&end.call).map(|begin| Call {
                    begin,
                    end: Some(*end),
                })),
            }
        }
        complete.sort_unstable_by_key(|call| call.begin.tick);
        for (begin, end) in begins.iter().zip(here) {
            match end {
                Some(_) => complete.push(Call { begin: *begin, end }),
                None => drop(self.open.insert(begin.tick, *begin)),
            }
        }
        complete
    }

    /// The calls that never ended, in the order in which they began.
    pub fn never_ended(self) -> Vec<Call> {
        let begins = self.open.into_values();
        let mut calls: Vec<Call> = begins.map(|begin| Call { begin, end: None }).collect();
        calls.sort_unstable_by_key(|call| call.begin.tick);
        calls
    }
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
