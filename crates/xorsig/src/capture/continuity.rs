//! Whether each batch continues those before it: what one batch alone cannot tell.

use std::collections::HashSet;

use super::header::Header;
use super::records::{CallRow, EndRow, Records};

/// What the batches read so far have left behind.
#[derive(Debug)]
pub struct Continuity {
    capture_id: [u8; 16],
    rank: u32,
    /// Number of the next batch.
    sequence: u64,
    /// Creation time and regions of the first batch.
    writer: Option<(u64, u32)>,
    last_tick: u64,
    names: u64,
    layouts: u64,
    /// Calls that began and did not end yet.
    open_calls: HashSet<u64>,
}

impl Continuity {
    /// The state before the first batch.
    pub fn new(capture_id: [u8; 16], rank: u32) -> Self {
        Self {
            capture_id,
            rank,
            sequence: 0,
            writer: None,
            last_tick: 0,
            // Name 0 is the empty name; no batch defines it.
            names: 1,
            layouts: 0,
            open_calls: HashSet::new(),
        }
    }

    /// Last tick so far, 0 if there is none.
    pub fn last_tick(&self) -> u64 {
        self.last_tick
    }

    /// Checks a batch, and remembers what the next one must continue.
    ///
    /// # Errors
    /// The reason why this is not the next batch of the capture.
    pub fn accept(&mut self, header: &Header, records: &Records) -> Result<(), String> {
        if header.capture_id != self.capture_id {
            let id = u128::from_be_bytes(header.capture_id);
            return Err(format!("the batch belongs to capture {id:032x}"));
        }
        if header.rank != self.rank {
            return Err(format!("the batch belongs to rank {}", header.rank));
        }
        if header.sequence != self.sequence {
            return Err(format!(
                "the batch is number {} under another name",
                header.sequence
            ));
        }
        let writer = (header.created_unix_ns, header.regions);
        if *self.writer.get_or_insert(writer) != writer {
            return Err("the batch belongs to another writer".into());
        }
        if header.first_tick > 0 {
            if header.first_tick - 1 != self.last_tick {
                return Err(format!("ticks begin at {}", header.first_tick));
            }
            self.last_tick = header.last_tick;
        }
        let names = records.names.len();
        define(&mut self.names, records.first_name, names, "names")?;
        let layouts = records.layouts.len();
        define(&mut self.layouts, records.first_layout, layouts, "layouts")?;
        check_ids(records, self.names, self.layouts)?;
        check_calls(records)?;
        self.match_ends(header.first_tick, records)?;
        self.sequence += 1;
        Ok(())
    }

    /// Finds the begin of every end. Most calls end in the batch in which they began, so that a
    /// mark for each tick of the batch serves instead of the set.
    fn match_ends(&mut self, first_tick: u64, records: &Records) -> Result<(), String> {
        let mut open_here = vec![false; records.ticked()];
        let place = |tick: u64| tick.checked_sub(first_tick).map(|index| index as usize);
        let mark = |call: &CallRow| place(call.tick);
        for index in records.calls.iter().filter_map(mark) {
            open_here[index] = true;
        }
        let mut ends = |end: &EndRow| match place(end.call) {
            Some(index) => open_here.get_mut(index).is_some_and(std::mem::take),
            None => self.open_calls.remove(&end.call),
        };
        if let Some(end) = records.ends.iter().find(|end| !ends(end)) {
            return Err(format!("call {} ends but is not open", end.call));
        }
        let open = |call: &&CallRow| place(call.tick).is_some_and(|index| open_here[index]);
        let still_open = records.calls.iter().filter(open);
        self.open_calls.extend(still_open.map(|call| call.tick));
        Ok(())
    }
}

/// Counts `count` new ids, which must follow the known ones.
fn define(known: &mut u64, first: u32, count: usize, what: &str) -> Result<(), String> {
    if count > 0 && u64::from(first) != *known {
        return Err(format!("{what} begin at id {first} instead of {known}"));
    }
    *known += count as u64;
    Ok(())
}

/// Whether every name, layout and text is defined.
fn check_ids(records: &Records, names: u64, layouts: u64) -> Result<(), String> {
    let Records {
        calls,
        ends,
        tensors,
        values,
        marks,
        spans,
        ..
    } = records;
    let used_names = [
        largest(
            records
                .layouts
                .iter()
                .flat_map(|r| [r.dtype, r.device, r.kind]),
        ),
        largest(calls.iter().map(|r| r.callee)),
        largest(ends.iter().map(|r| r.error)),
        largest(tensors.slots.iter().copied()),
        largest(tensors.notes.iter().copied()),
        largest(values.iter().map(|r| r.slot)),
        largest(marks.iter().map(|r| r.name)),
        largest(
            spans
                .iter()
                .flat_map(|r| [r.file, r.qualname, r.operator, r.example]),
        ),
    ];
    if let Some(id) = undefined(used_names, names) {
        return Err(format!("name {id} is not defined"));
    }
    if let Some(id) = undefined([largest(tensors.layouts.iter().copied())], layouts) {
        return Err(format!("layout {id} is not defined"));
    }
    let used_texts = [
        largest(values.iter().map(|r| r.text)),
        largest(marks.iter().map(|r| r.text)),
    ];
    match undefined(used_texts, records.texts.len() as u64) {
        Some(index) => Err(format!("the batch has no text {index}")),
        None => Ok(()),
    }
}

fn largest(ids: impl Iterator<Item = u32>) -> Option<u32> {
    ids.max()
}

fn undefined<const N: usize>(ids: [Option<u32>; N], defined: u64) -> Option<u32> {
    let largest = ids.into_iter().flatten().max();
    largest.filter(|id| u64::from(*id) >= defined)
}

/// Whether every record refers to an earlier call.
fn check_calls(records: &Records) -> Result<(), String> {
    let tensors = &records.tensors;
    let later = |(call, tick): &(u64, u64)| call >= tick;
    let found = (records.calls.iter().map(|r| (r.parent, r.tick)).find(later))
        .or_else(|| records.ends.iter().map(|r| (r.call, r.tick)).find(later))
        .or_else(|| {
            let calls = tensors.calls.iter().copied();
            calls.zip(tensors.ticks.iter().copied()).find(later)
        })
        .or_else(|| records.values.iter().map(|r| (r.call, r.tick)).find(later));
    match found {
        Some((call, tick)) => Err(format!("record {tick} refers to the later call {call}")),
        None => Ok(()),
    }
}
