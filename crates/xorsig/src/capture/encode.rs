//! Records of one batch to the bytes of its file.
//!
//! Ticks, times and calls are written as differences to the row before: neighbours differ little,
//! so the compressor sees runs of equal bytes.

use super::columns::ColumnWriter;
use super::header::{ENTRY_BYTES, Entry, HEADER_BYTES, Header, crc64};
use super::kinds::Kind;
use super::records::{LayoutRow, Records, Tensors};

/// What a batch is called, apart from its records.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Identity of the capture.
    pub capture_id: [u8; 16],
    /// Rank that writes.
    pub rank: u32,
    /// Regions per fingerprint.
    pub regions: u32,
    /// Unix time of the writer's creation, ns.
    pub created_unix_ns: u64,
}

/// The file of batch `sequence`, whose ticks are `first_tick` and following.
pub fn encode(identity: &Identity, sequence: u64, first_tick: u64, records: &Records) -> Vec<u8> {
    let ticked = records.ticked() as u64;
    let (first_tick, last_tick) = if ticked == 0 {
        (0, 0)
    } else {
        (first_tick, first_tick + ticked - 1)
    };
    let present: Vec<Kind> = Kind::ALL
        .into_iter()
        .filter(|kind| rows(*kind, records) > 0)
        .collect();
    let table = present.len() * ENTRY_BYTES;
    let mut file = vec![0; HEADER_BYTES + table];
    for (kind, entry_at) in present.iter().zip((HEADER_BYTES..).step_by(ENTRY_BYTES)) {
        let begin = file.len();
        section(
            *kind,
            first_tick,
            records,
            &mut ColumnWriter::new(&mut file),
        );
        let entry = Entry {
            kind: *kind as u16,
            rows: rows(*kind, records) as u32,
            offset: (begin - HEADER_BYTES) as u64,
            length: (file.len() - begin) as u64,
        };
        file[entry_at..entry_at + ENTRY_BYTES].copy_from_slice(&entry.encode());
    }
    let header = Header {
        rank: identity.rank,
        capture_id: identity.capture_id,
        sequence,
        created_unix_ns: identity.created_unix_ns,
        first_tick,
        last_tick,
        records: records.len() as u64,
        sections: present.len() as u32,
        regions: identity.regions,
        payload_bytes: (file.len() - HEADER_BYTES) as u64,
        payload_crc: crc64(&file[HEADER_BYTES..]),
    };
    file[..HEADER_BYTES].copy_from_slice(&header.encode());
    file
}

/// Rows of a section.
fn rows(kind: Kind, records: &Records) -> usize {
    match kind {
        Kind::Names => records.names.len(),
        Kind::Layouts => records.layouts.len(),
        Kind::Texts => records.texts.len(),
        Kind::Calls => records.calls.len(),
        Kind::Ends => records.ends.len(),
        Kind::Tensors => records.tensors.len(),
        Kind::Values => records.values.len(),
        Kind::Marks => records.marks.len(),
        Kind::Spans => records.spans.len(),
        Kind::Withdrawn => records.withdrawn.len(),
    }
}

/// The columns of a section, in the order of `docs/formats/batch.md`.
fn section(kind: Kind, first_tick: u64, records: &Records, out: &mut ColumnWriter<'_>) {
    match kind {
        Kind::Names => {
            out.numbers([records.first_name].into_iter());
            out.texts(&records.names);
        }
        Kind::Layouts => layouts(records.first_layout, &records.layouts, out),
        Kind::Texts => out.texts(&records.texts),
        Kind::Calls => {
            let rows = || records.calls.iter();
            out.numbers(tick_deltas(first_tick, rows().map(|r| r.tick)));
            out.numbers(time_deltas(rows().map(|r| r.time_ns)));
            out.numbers(rows().map(|r| r.parent));
            out.numbers(rows().map(|r| r.site));
            out.numbers(rows().map(|r| r.step));
            out.numbers(rows().map(|r| r.phase));
            out.numbers(rows().map(|r| r.thread));
            out.numbers(rows().map(|r| r.flags));
            out.numbers(rows().map(|r| r.callee));
        }
        Kind::Ends => {
            let rows = || records.ends.iter();
            out.numbers(tick_deltas(first_tick, rows().map(|r| r.tick)));
            out.numbers(time_deltas(rows().map(|r| r.time_ns)));
            out.numbers(rows().map(|r| r.tick.wrapping_sub(r.call)));
            out.numbers(rows().map(|r| r.status));
            out.numbers(rows().map(|r| r.flags));
            out.numbers(rows().map(|r| r.error));
        }
        Kind::Tensors => tensors(first_tick, &records.tensors, out),
        Kind::Values => {
            let rows = || records.values.iter();
            out.numbers(tick_deltas(first_tick, rows().map(|r| r.tick)));
            out.numbers(call_deltas(rows().map(|r| r.call)));
            out.numbers(rows().map(|r| r.role));
            out.numbers(rows().map(|r| r.slot));
            out.numbers(rows().map(|r| r.text));
        }
        Kind::Marks => {
            let rows = || records.marks.iter();
            out.numbers(tick_deltas(first_tick, rows().map(|r| r.tick)));
            out.numbers(time_deltas(rows().map(|r| r.time_ns)));
            out.numbers(rows().map(|r| r.kind));
            out.numbers(rows().map(|r| r.step));
            out.numbers(rows().map(|r| r.name));
            out.numbers(rows().map(|r| r.text));
        }
        Kind::Spans => {
            let rows = || records.spans.iter();
            out.numbers(rows().map(|r| r.file));
            out.numbers(rows().map(|r| r.qualname));
            for part in 0..4 {
                out.numbers(rows().map(|r| r.position[part]));
            }
            out.numbers(rows().map(|r| r.operator));
            out.numbers(rows().map(|r| r.count));
            out.numbers(rows().map(|r| r.flags));
            out.numbers(rows().map(|r| r.example));
        }
        Kind::Withdrawn => {
            out.numbers(tick_deltas(first_tick, records.withdrawn.iter().copied()));
        }
    }
}

fn layouts(first: u32, layouts: &[LayoutRow], out: &mut ColumnWriter<'_>) {
    let rows = || layouts.iter();
    out.numbers([first].into_iter());
    out.numbers(rows().map(|r| r.dtype));
    out.lists(rows().map(|r| r.shape.as_slice()));
    out.numbers(rows().map(|r| u8::from(r.strides.is_some())));
    out.lists(rows().map(|r| r.strides.as_deref().unwrap_or_default()));
    out.numbers(rows().map(|r| r.device));
    out.numbers(rows().map(|r| r.kind));
    out.numbers(rows().map(|r| r.logical_nbytes));
}

fn tensors(first_tick: u64, rows: &Tensors, out: &mut ColumnWriter<'_>) {
    out.numbers(tick_deltas(first_tick, rows.ticks.iter().copied()));
    out.numbers(call_deltas(rows.calls.iter().copied()));
    out.numbers(rows.roles.iter().copied());
    out.numbers(rows.slots.iter().copied());
    out.numbers(rows.layouts.iter().copied());
    out.numbers(rows.notes.iter().copied());
    out.numbers(rows.present.iter().map(|present| u8::from(*present)));
    out.bytes(&rows.signatures);
}

/// Distance of each tick from the one before; the first from the batch's first tick.
fn tick_deltas(first: u64, ticks: impl Iterator<Item = u64>) -> impl Iterator<Item = u32> {
    let mut before = first;
    ticks.map(move |tick| (tick - std::mem::replace(&mut before, tick)) as u32)
}

/// Distance of each time from the one before; the first from the writer's creation.
fn time_deltas(times: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    let mut before = 0;
    times.map(move |time| time - std::mem::replace(&mut before, time))
}

/// Signed distance of each call from the one before; the first from 0.
fn call_deltas(calls: impl Iterator<Item = u64>) -> impl Iterator<Item = i64> {
    let mut before = 0;
    calls.map(move |call| call.wrapping_sub(std::mem::replace(&mut before, call)) as i64)
}
