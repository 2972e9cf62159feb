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

/// A slice's row and what belongs to it.
pub struct Slice {
    /// Index of the batch of slices that holds it.
    pub batch: usize,
    /// Its row there.
    pub row: usize,
    /// Its place on its track.
    pub span: Span,
    /// Batch and row of each of its tensors.
    pub slots: Vec<(usize, usize)>,
    /// Flows that begin or end here.
    pub flows: Vec<u64>,
}

/// The columns of a batch of slices that its packets need.
pub struct SliceColumns<'a> {
    /// Names of the slices.
    pub name: Column<'a>,
    /// What is shown beside a slice.
    pub annotations: Vec<Annotation<'a>>,
}

/// The slices by track, tracks in order of first appearance.
pub struct Plan<'a> {
    /// The slices, in the order of their table.
    pub slices: Vec<Slice>,
    /// Columns of each batch of slices.
    pub columns: Vec<SliceColumns<'a>>,
    /// Name and slices of each track.
    pub tracks: Vec<(&'a str, Vec<Span>)>,
}

/// Reads and checks the tables of a report.
pub fn plan<'a>(report: &Report<'a>) -> Result<Plan<'a>, ReportError> {
    let mut plan = Plan {
        slices: Vec::new(),
        columns: Vec::new(),
        tracks: Vec::new(),
    };
    let mut by_id = HashMap::with_hasher(RandomState::new());
    let mut by_name = HashMap::with_hasher(RandomState::new());
    for (index, batch) in report.slices.iter().enumerate() {
        let find = |name| Column::find("slices", batch, name);
        let (ids, tracks) = (find("id")?, find("track")?);
        let (times, durations) = (find("ts_ns")?, find("dur_ns")?);
        plan.columns.push(SliceColumns {
            name: find("name")?,
            annotations: annotations(batch),
        });
        for row in 0..batch.num_rows() {
            let (id, begin_ns) = (ids.uint(row)?, times.uint(row)?);
            let end_ns = begin_ns.checked_add(durations.uint(row)?);
            let end_ns = end_ns.ok_or_else(|| invalid(format!("slice {id} ends after 2^64 ns")))?;
            let span = Span {
                slice: plan.slices.len(),
                begin_ns,
                end_ns,
            };
            if by_id.insert(id, span.slice).is_some() {
                return Err(invalid(format!("slice id {id} is not unique")));
            }
            let name = tracks.text(row)?;
            let at = *by_name.entry(name).or_insert_with(|| {
                plan.tracks.push((name, Vec::new()));
                plan.tracks.len() - 1
            });
            plan.tracks[at].1.push(span);
            plan.slices.push(Slice {
                batch: index,
                row,
                span,
                slots: Vec::new(),
                flows: Vec::new(),
            });
        }
    }
    let find = |id: u64, table: &str| {
        by_id
            .get(&id)
            .copied()
            .ok_or_else(|| invalid(format!("{table} names no slice with {id}")))
    };
    for (index, batch) in report.slots.iter().enumerate() {
        let owners = Column::find("slots", batch, "slice")?;
        for row in 0..batch.num_rows() {
            let owner = find(owners.uint(row)?, "slots")?;
            plan.slices[owner].slots.push((index, row));
        }
    }
    for batch in report.flows {
        let ids = Column::find("flows", batch, "id")?;
        // The same kind of flow id on both ends: a terminating one would be lost without a
        // trace if its slice began first.
        for end in ["from", "to"] {
            let ends = Column::find("flows", batch, end)?;
            for row in 0..batch.num_rows() {
                let slice = find(ends.uint(row)?, "flows")?;
                plan.slices[slice].flows.push(ids.uint(row)?);
            }
        }
    }
    Ok(plan)
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
