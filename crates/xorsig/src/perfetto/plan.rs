//! Which slices a report has, on which tracks, with which tensors and flows.

use std::collections::HashMap;

use super::columns::{Row, TableRef};
use super::events::Span;
use super::{Report, ReportError};

/// A slice's row and what belongs to it.
pub struct Slice<'a> {
    /// The slice's row.
    pub row: Row<'a>,
    /// Its place on its track.
    pub span: Span,
    /// Rows of its tensors.
    pub slots: Vec<Row<'a>>,
    /// Flows that begin or end here.
    pub flows: Vec<u64>,
}

/// The slices by track, tracks in order of first appearance.
pub struct Plan<'a> {
    /// The slices, in the order of their table.
    pub slices: Vec<Slice<'a>>,
    /// Name and slices of each track.
    pub tracks: Vec<(&'a str, Vec<Span>)>,
}

/// Reads and checks the tables of a report.
pub fn plan<'a>(report: &Report<'a>) -> Result<Plan<'a>, ReportError> {
    let mut slices: Vec<Slice<'a>> = Vec::new();
    let mut by_id = HashMap::new();
    let mut tracks: Vec<(&str, Vec<Span>)> = Vec::new();
    let mut by_name = HashMap::new();
    for row in (TableRef {
        name: "slices",
        batches: report.slices,
    })
    .rows()
    {
        let (id, begin_ns) = (row.uint("id")?, row.uint("ts_ns")?);
        let end_ns = begin_ns.checked_add(row.uint("dur_ns")?);
        let end_ns = end_ns.ok_or_else(|| invalid(format!("slice {id} ends after 2^64 ns")))?;
        let span = Span {
            slice: slices.len(),
            begin_ns,
            end_ns,
        };
        if by_id.insert(id, slices.len()).is_some() {
            return Err(invalid(format!("slice id {id} is not unique")));
        }
        let name = row.text("track")?;
        let at = *by_name.entry(name).or_insert_with(|| {
            tracks.push((name, Vec::new()));
            tracks.len() - 1
        });
        tracks[at].1.push(span);
        slices.push(Slice {
            row,
            span,
            slots: Vec::new(),
            flows: Vec::new(),
        });
    }
    let find = |id: u64, table: &str| {
        by_id
            .get(&id)
            .copied()
            .ok_or_else(|| invalid(format!("{table} names no slice with {id}")))
    };
    for row in (TableRef {
        name: "slots",
        batches: report.slots,
    })
    .rows()
    {
        slices[find(row.uint("slice")?, "slots")?].slots.push(row);
    }
    for row in (TableRef {
        name: "flows",
        batches: report.flows,
    })
    .rows()
    {
        let id = row.uint("id")?;
        // The same kind of flow id on both ends: a terminating one would be lost without a
        // trace if its slice began first.
        for end in ["from", "to"] {
            slices[find(row.uint(end)?, "flows")?].flows.push(id);
        }
    }
    Ok(Plan { slices, tracks })
}

fn invalid(message: String) -> ReportError {
    ReportError::Invalid(message)
}
