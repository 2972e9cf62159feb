//! Flat Perfetto reports: tracks of slices, flows between them, tensors as annotations.
//!
//! The encoder is written by hand over [`proto`]: one packet sequence, texts interned, nothing
//! but track descriptors and track events. `docs/formats/perfetto.md` describes what a viewer
//! or a query finds in a report.

mod annotations;
mod columns;
mod events;
mod fields;
mod intern;
mod proto;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;

use columns::{Row, TableRef, cell};
use events::{Edge, Span, edges};
use fields::{event, packet, trace, track};
use intern::Interned;
use proto::Message;

/// The only packet sequence of a report.
const SEQUENCE: u64 = 1;
/// Track that holds all others.
const ROOT_TRACK: u64 = 1;
/// Columns of the slices that are not annotations.
const SLICE_COLUMNS: [&str; 5] = ["id", "track", "ts_ns", "dur_ns", "name"];

/// Why a report could not be written.
#[derive(Debug)]
pub enum ReportError {
    /// A table lacks a column or holds a value that a report cannot have.
    Invalid(String),
    /// The file could not be written.
    Io {
        /// The report's path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl std::fmt::Display for ReportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Invalid(message) => f.write_str(message),
            Self::Io { path, source } => write!(f, "cannot write {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for ReportError {}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Slices.
    pub events: u64,
    /// Size of the file.
    pub bytes: u64,
}

/// The tables of a report.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// Name of the track that holds all others.
    pub name: &'a str,
    /// `id`, `track`, `ts_ns`, `dur_ns`, `name`; every other column is an annotation.
    pub slices: &'a [RecordBatch],
    /// Tensors of the slices, in order.
    pub slots: &'a [RecordBatch],
    /// `id`, `from`, `to`.
    pub flows: &'a [RecordBatch],
}

/// Writes a report, in place of an older one of the same path, once it is complete.
///
/// # Errors
/// [`ReportError`].
pub fn write(path: &Path, report: Report<'_>) -> Result<Written, ReportError> {
    let hidden = hidden_beside(path);
    let failed = |source| ReportError::Io { path: path.to_owned(), source };
    let file = File::create(&hidden).map_err(failed)?;
    let written = encode(&report, BufWriter::new(file), path).and_then(|written| {
        fs::rename(&hidden, path).map_err(failed)?;
        Ok(written)
    });
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&hidden);
    }
    written
}

fn hidden_beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

/// A slice's row and what belongs to it.
struct Slice<'a> {
    row: Row<'a>,
    span: Span,
    slots: Vec<Row<'a>>,
    flows: Vec<u64>,
}

/// The slices by track, tracks in order of first appearance.
struct Plan<'a> {
    slices: Vec<Slice<'a>>,
    tracks: Vec<(&'a str, Vec<Span>)>,
}

fn plan<'a>(report: &Report<'a>) -> Result<Plan<'a>, ReportError> {
    let mut slices: Vec<Slice<'a>> = Vec::new();
    let mut by_id = HashMap::new();
    let mut tracks: Vec<(&str, Vec<Span>)> = Vec::new();
    let mut by_name = HashMap::new();
    for row in (TableRef { name: "slices", batches: report.slices }).rows() {
        let (id, begin_ns) = (row.uint("id")?, row.uint("ts_ns")?);
        let end_ns = begin_ns.checked_add(row.uint("dur_ns")?);
        let end_ns = end_ns.ok_or_else(|| invalid(format!("slice {id} ends after 2^64 ns")))?;
        let span = Span { slice: slices.len(), begin_ns, end_ns };
        if by_id.insert(id, slices.len()).is_some() {
            return Err(invalid(format!("slice id {id} is not unique")));
        }
        let name = row.text("track")?;
        let at = *by_name.entry(name).or_insert_with(|| {
            tracks.push((name, Vec::new()));
            tracks.len() - 1
        });
        tracks[at].1.push(span);
        slices.push(Slice { row, span, slots: Vec::new(), flows: Vec::new() });
    }
    let find = |id: u64, table: &str| {
        by_id.get(&id).copied().ok_or_else(|| invalid(format!("{table} names no slice with {id}")))
    };
    for row in (TableRef { name: "slots", batches: report.slots }).rows() {
        slices[find(row.uint("slice")?, "slots")?].slots.push(row);
    }
    for row in (TableRef { name: "flows", batches: report.flows }).rows() {
        let id = row.uint("id")?;
        // The same kind of flow id on both ends: a terminating one would be lost without a
        // trace if its slice began first.
        for end in ["from", "to"] {
            slices[find(row.uint(end)?, "flows")?].flows.push(id);
        }
    }
    Ok(Plan { slices, tracks })
}

fn encode(report: &Report<'_>, out: impl Write, path: &Path) -> Result<Written, ReportError> {
    let plan = plan(report)?;
    let mut encoder = Encoder { out, packet: Message::default(), interned: Interned::default(), bytes: 0 };
    let failed = |source| ReportError::Io { path: path.to_owned(), source };
    encoder.descriptor(report.name, ROOT_TRACK, None).map_err(failed)?;
    for (rank, (name, spans)) in plan.tracks.into_iter().enumerate() {
        let uuid = ROOT_TRACK + 1 + rank as u64;
        encoder.descriptor(name, uuid, Some(rank as u64)).map_err(failed)?;
        for edge in edges(name, spans)? {
            encoder.start_packet();
            match edge {
                Edge::Begin(slice) => encoder.begin(uuid, &plan.slices[slice])?,
                Edge::End(time) => encoder.end(uuid, time),
            }
            encoder.finish_packet().map_err(failed)?;
        }
    }
    encoder.out.flush().map_err(failed)?;
    Ok(Written { events: plan.slices.len() as u64, bytes: encoder.bytes })
}

struct Encoder<W> {
    out: W,
    /// The packet under construction; kept for its memory.
    packet: Message,
    interned: Interned,
    bytes: u64,
}

impl<W: Write> Encoder<W> {
    fn start_packet(&mut self) {
        self.packet.clear();
        self.packet.uint(packet::TRUSTED_PACKET_SEQUENCE_ID, SEQUENCE);
        // The first packet of a sequence must clear the state, or those before it are dropped.
        let first = self.bytes == 0;
        let cleared = if first { packet::INCREMENTAL_STATE_CLEARED } else { 0 };
        self.packet.uint(packet::SEQUENCE_FLAGS, cleared | packet::NEEDS_INCREMENTAL_STATE);
        if first {
            self.packet.uint(packet::FIRST_PACKET_ON_SEQUENCE, 1);
        }
    }

    fn finish_packet(&mut self) -> io::Result<()> {
        let mut framed = Message::default();
        framed.nested(trace::PACKET, |packet| packet.append(&self.packet));
        self.bytes += framed.bytes().len() as u64;
        self.out.write_all(framed.bytes())
    }

    /// A track: the root without a rank, any other below it.
    fn descriptor(&mut self, name: &str, uuid: u64, rank: Option<u64>) -> io::Result<()> {
        self.start_packet();
        self.packet.nested(packet::TRACK_DESCRIPTOR, |message| {
            message.uint(track::UUID, uuid);
            message.text(track::NAME, name);
            message.uint(track::SIBLING_MERGE_BEHAVIOR, track::MERGE_NONE);
            match rank {
                None => message.uint(track::CHILD_ORDERING, track::ORDERING_EXPLICIT),
                Some(rank) => {
                    message.uint(track::PARENT_UUID, ROOT_TRACK);
                    message.uint(track::SIBLING_ORDER_RANK, rank);
                }
            }
        });
        self.finish_packet()
    }

    fn begin(&mut self, track: u64, slice: &Slice<'_>) -> Result<(), ReportError> {
        let Self { packet: message, interned, .. } = self;
        let name = interned.event_name(slice.row.text("name")?);
        message.uint(packet::TIMESTAMP, slice.span.begin_ns);
        message.nested(packet::TRACK_EVENT, |message| {
            message.uint(event::TYPE, event::SLICE_BEGIN);
            message.uint(event::TRACK_UUID, track);
            message.uint(event::NAME_IID, name);
            slice.flows.iter().for_each(|id| message.fixed64(event::FLOW_IDS, *id));
            let batch = slice.row.batch;
            for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
                if !SLICE_COLUMNS.contains(&field.name().as_str()) {
                    let value = cell(column, slice.row.row)?;
                    let annotations = event::DEBUG_ANNOTATIONS;
                    annotations::named(message, annotations, interned, field.name(), &value)?;
                }
            }
            if !slice.slots.is_empty() {
                annotations::slots(message, event::DEBUG_ANNOTATIONS, interned, &slice.slots)?;
            }
            Ok(())
        })?;
        interned.take_fresh(message, packet::INTERNED_DATA);
        Ok(())
    }

    fn end(&mut self, track: u64, time_ns: u64) {
        self.packet.uint(packet::TIMESTAMP, time_ns);
        self.packet.nested(packet::TRACK_EVENT, |message| {
            message.uint(event::TYPE, event::SLICE_END);
            message.uint(event::TRACK_UUID, track);
        });
    }
}

fn invalid(message: String) -> ReportError {
    ReportError::Invalid(message)
}
