//! Which slices a report has, on which tracks, with which tensors and flows.

use std::collections::HashMap;

use ahash::RandomState;
use arrow_array::RecordBatch;

use super::annotations::Annotation;
use super::columns::Column;
use super::events::Span;
use super::{Report, ReportError};

/// Columns of the slices that are not annotations.
const SLICE_COLUMNS: [&str; 5] = ["id", "track", "ts_ns", "dur_ns", "name"];

/// A batch of slices: its place among all slices, and the columns that its packets need.
pub struct SliceBatch<'a> {
    /// Index of its first slice.
    pub first: usize,
    /// Names of the slices.
    pub name: Column<'a>,
    /// What is shown beside a slice.
    pub annotations: Vec<Annotation<'a>>,
}

/// The slices by track, tracks in order of first appearance.
pub struct Plan<'a> {
    /// Number of slices.
    pub slices: usize,
    /// The batches of slices, in the order of their table.
    pub batches: Vec<SliceBatch<'a>>,
    /// Name and slices of each track.
    pub tracks: Vec<(&'a str, Vec<Span>)>,
    /// Batch and row of the tensors of each slice.
    pub slots: Groups<(usize, usize)>,
    /// Flows that begin or end at each slice.
    pub flows: Groups<u64>,
}

impl<'a> Plan<'a> {
    /// The batch of a slice, and its row there.
    pub fn row(&mut self, slice: usize) -> (&mut SliceBatch<'a>, usize) {
        let batch = self.batches.partition_point(|batch| batch.first <= slice) - 1;
        let batch = &mut self.batches[batch];
        let row = slice - batch.first;
        (batch, row)
    }
}

/// Items of slices, those of one slice side by side.
pub struct Groups<T> {
    /// Where the items of each slice begin; empty if there are none.
    begins: Vec<usize>,
    items: Vec<T>,
}

impl<T: Copy + Default> Groups<T> {
    /// Groups the items of `slices` slices; those of one slice keep their order.
    fn new(pairs: &[(usize, T)], slices: usize) -> Self {
        if pairs.is_empty() {
            let (begins, items) = (Vec::new(), Vec::new());
            return Self { begins, items };
        }
        let mut begins = vec![0; slices + 1];
        for (slice, _) in pairs {
            begins[slice + 1] += 1;
        }
        for slice in 0..slices {
            begins[slice + 1] += begins[slice];
        }
        let mut next = begins.clone();
        let mut items = vec![T::default(); pairs.len()];
        for (slice, item) in pairs {
            items[next[*slice]] = *item;
            next[*slice] += 1;
        }
        Self { begins, items }
    }

    /// The items of a slice.
    pub fn of(&self, slice: usize) -> &[T] {
        match self.begins.get(slice..slice + 2) {
            Some(ends) => &self.items[ends[0]..ends[1]],
            None => &[],
        }
    }
}

/// Reads and checks the tables of a report.
pub fn plan<'a>(report: &Report<'a>) -> Result<Plan<'a>, ReportError> {
    let count = report.slices.iter().map(RecordBatch::num_rows).sum();
    let mut ids = Vec::with_capacity(count);
    let mut batches = Vec::new();
    let mut tracks: Vec<(&str, Vec<Span>)> = Vec::new();
    let mut by_name = HashMap::with_hasher(RandomState::new());
    for batch in report.slices {
        let find = |name| Column::find("slices", batch, name);
        let (id, track) = (find("id")?, find("track")?);
        let (times, durations) = (find("ts_ns")?, find("dur_ns")?);
        batches.push(SliceBatch {
            first: ids.len(),
            name: find("name")?,
            annotations: annotations(batch),
        });
        for row in 0..batch.num_rows() {
            let (id, begin_ns) = (id.uint(row)?, times.uint(row)?);
            let end_ns = begin_ns.checked_add(durations.uint(row)?);
            let end_ns = end_ns.ok_or_else(|| invalid(format!("slice {id} ends after 2^64 ns")))?;
            let span = Span {
                slice: ids.len(),
                begin_ns,
                end_ns,
            };
            ids.push((id, span.slice));
            let name = track.text(row)?;
            let at = *by_name.entry(name).or_insert_with(|| {
                tracks.push((name, Vec::new()));
                tracks.len() - 1
            });
            tracks[at].1.push(span);
        }
    }
    // A search in a sorted list: ids ascend as a rule, and then there is nothing to sort.
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(invalid(format!("slice id {} is not unique", pair[0].0)));
    }
    let find = |id: u64, table: &str| match ids.binary_search_by_key(&id, |(id, _)| *id) {
        Ok(at) => Ok(ids[at].1),
        Err(_) => Err(invalid(format!("{table} names no slice with {id}"))),
    };
    let mut slots = Vec::new();
    for (index, batch) in report.slots.iter().enumerate() {
        let owners = Column::find("slots", batch, "slice")?;
        for row in 0..batch.num_rows() {
            slots.push((find(owners.uint(row)?, "slots")?, (index, row)));
        }
    }
    let mut flows = Vec::new();
    for batch in report.flows {
        let ids = Column::find("flows", batch, "id")?;
        // The same kind of flow id on both ends: a terminating one would be lost without a
        // trace if its slice began first.
        for end in ["from", "to"] {
            let ends = Column::find("flows", batch, end)?;
            for row in 0..batch.num_rows() {
                flows.push((find(ends.uint(row)?, "flows")?, ids.uint(row)?));
            }
        }
    }
    Ok(Plan {
        slices: count,
        batches,
        tracks,
        slots: Groups::new(&slots, count),
        flows: Groups::new(&flows, count),
    })
}

fn annotations(batch: &RecordBatch) -> Vec<Annotation<'_>> {
    let fields = batch.schema_ref().fields().iter().zip(batch.columns());
    fields
        .filter(|(field, _)| !SLICE_COLUMNS.contains(&field.name().as_str()))
        .map(|(field, array)| Annotation::new(Column::new("slices", field.name(), array)))
        .collect()
}

fn invalid(message: String) -> ReportError {
    ReportError::Invalid(message)
}
