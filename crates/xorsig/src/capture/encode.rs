//! Records of one batch to the bytes of its file.
//!
//! Ticks, times and calls are written as differences to the row before: neighbours differ little,
//! so the compressor sees runs of equal bytes.

use std::sync::Arc;

use arrow_array::builder::{FixedSizeBinaryBuilder, Int64Builder, ListBuilder};
use arrow_array::{
    ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, UInt8Array, UInt32Array,
    UInt64Array,
};
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_ipc::{CompressionType, MetadataVersion};
use arrow_schema::{ArrowError, DataType, Field};

use super::header::{ENTRY_BYTES, Entry, HEADER_BYTES, Header, crc64};
use super::records::{LayoutRow, Records, Tensors};
use super::schema::Kind;

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
///
/// # Errors
/// Arrow refuses a column; a batch built by the writer never causes it.
pub fn encode(
    identity: &Identity,
    sequence: u64,
    first_tick: u64,
    records: &Records,
) -> Result<Vec<u8>, ArrowError> {
    let ticked = records.ticked() as u64;
    let (first_tick, last_tick) = if ticked == 0 {
        (0, 0)
    } else {
        (first_tick, first_tick + ticked - 1)
    };
    let mut entries = Vec::new();
    let mut sections = Vec::new();
    let present = Kind::ALL
        .into_iter()
        .filter(|kind| rows(*kind, records) > 0);
    let present: Vec<Kind> = present.collect();
    let table = present.len() * ENTRY_BYTES;
    for kind in present {
        let batch = RecordBatch::try_new(
            kind.schema(identity.regions),
            columns(kind, identity.regions, first_tick, records)?,
        )?;
        let begin = sections.len();
        write_stream(&batch, &mut sections)?;
        entries.push(Entry {
            kind: kind as u16,
            rows: batch.num_rows() as u32,
            offset: (table + begin) as u64,
            length: (sections.len() - begin) as u64,
        });
    }
    let mut file = vec![0; HEADER_BYTES];
    entries
        .iter()
        .for_each(|entry| file.extend_from_slice(&entry.encode()));
    file.append(&mut sections);
    let header = Header {
        rank: identity.rank,
        capture_id: identity.capture_id,
        sequence,
        created_unix_ns: identity.created_unix_ns,
        first_tick,
        last_tick,
        records: records.len() as u64,
        sections: entries.len() as u32,
        regions: identity.regions,
        payload_bytes: (file.len() - HEADER_BYTES) as u64,
        payload_crc: crc64(&file[HEADER_BYTES..]),
    };
    file[..HEADER_BYTES].copy_from_slice(&header.encode());
    Ok(file)
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
    }
}

/// Appends `batch` as one Arrow IPC stream with compressed bodies.
fn write_stream(batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ArrowError> {
    let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5)?
        .try_with_compression(Some(CompressionType::LZ4_FRAME))?;
    let mut writer = StreamWriter::try_new_with_options(out, &batch.schema(), options)?;
    writer.write(batch)?;
    writer.finish()
}

/// The columns of a section, in the order of its schema.
fn columns(
    kind: Kind,
    regions: u32,
    first_tick: u64,
    records: &Records,
) -> Result<Vec<ArrayRef>, ArrowError> {
    Ok(match kind {
        Kind::Names => vec![
            ids(records.first_name, records.names.len()),
            texts(&records.names),
        ],
        Kind::Layouts => layout_columns(records.first_layout, &records.layouts),
        Kind::Texts => vec![texts(&records.texts)],
        Kind::Calls => {
            let rows = &records.calls;
            vec![
                tick_deltas(first_tick, rows.iter().map(|r| r.tick)),
                time_deltas(rows.iter().map(|r| r.time_ns)),
                u64s(rows.iter().map(|r| r.parent)),
                u32s(rows.iter().map(|r| r.site)),
                i64s(rows.iter().map(|r| r.step)),
                u8s(rows.iter().map(|r| r.phase)),
                u32s(rows.iter().map(|r| r.thread)),
                u32s(rows.iter().map(|r| r.flags)),
                u32s(rows.iter().map(|r| r.callee)),
            ]
        }
        Kind::Ends => {
            let rows = &records.ends;
            vec![
                tick_deltas(first_tick, rows.iter().map(|r| r.tick)),
                time_deltas(rows.iter().map(|r| r.time_ns)),
                u64s(rows.iter().map(|r| r.tick.wrapping_sub(r.call))),
                u8s(rows.iter().map(|r| r.status)),
                u32s(rows.iter().map(|r| r.flags)),
                u32s(rows.iter().map(|r| r.error)),
            ]
        }
        Kind::Tensors => tensor_columns(regions, first_tick, &records.tensors)?,
        Kind::Values => {
            let rows = &records.values;
            vec![
                tick_deltas(first_tick, rows.iter().map(|r| r.tick)),
                call_deltas(rows.iter().map(|r| r.call)),
                u8s(rows.iter().map(|r| r.role)),
                u32s(rows.iter().map(|r| r.slot)),
                u32s(rows.iter().map(|r| r.text)),
            ]
        }
        Kind::Marks => {
            let rows = &records.marks;
            vec![
                tick_deltas(first_tick, rows.iter().map(|r| r.tick)),
                time_deltas(rows.iter().map(|r| r.time_ns)),
                u8s(rows.iter().map(|r| r.kind)),
                i64s(rows.iter().map(|r| r.step)),
                u32s(rows.iter().map(|r| r.name)),
                u32s(rows.iter().map(|r| r.text)),
            ]
        }
        Kind::Spans => {
            let rows = &records.spans;
            let position = |i: usize| i32s(rows.iter().map(move |r| r.position[i]));
            vec![
                u32s(rows.iter().map(|r| r.file)),
                u32s(rows.iter().map(|r| r.qualname)),
                position(0),
                position(1),
                position(2),
                position(3),
                u32s(rows.iter().map(|r| r.operator)),
                u64s(rows.iter().map(|r| r.count)),
                u32s(rows.iter().map(|r| r.flags)),
                u32s(rows.iter().map(|r| r.example)),
            ]
        }
    })
}

fn layout_columns(first: u32, rows: &[LayoutRow]) -> Vec<ArrayRef> {
    let item = || Arc::new(Field::new("item", DataType::Int64, false));
    let mut shapes = ListBuilder::new(Int64Builder::new()).with_field(item());
    let mut strides = ListBuilder::new(Int64Builder::new()).with_field(item());
    for row in rows {
        shapes.values().append_slice(&row.shape);
        shapes.append(true);
        strides
            .values()
            .append_slice(row.strides.as_deref().unwrap_or_default());
        strides.append(row.strides.is_some());
    }
    vec![
        ids(first, rows.len()),
        u32s(rows.iter().map(|r| r.dtype)),
        Arc::new(shapes.finish()),
        Arc::new(strides.finish()),
        u32s(rows.iter().map(|r| r.device)),
        u32s(rows.iter().map(|r| r.kind)),
        u64s(rows.iter().map(|r| r.logical_nbytes)),
    ]
}

fn tensor_columns(
    regions: u32,
    first_tick: u64,
    rows: &Tensors,
) -> Result<Vec<ArrayRef>, ArrowError> {
    let width = 8 * regions as usize;
    let mut signatures = FixedSizeBinaryBuilder::with_capacity(rows.len(), width as i32);
    for (present, signature) in rows.present.iter().zip(rows.signatures.chunks_exact(width)) {
        if *present {
            signatures.append_value(signature)?;
        } else {
            signatures.append_null();
        }
    }
    Ok(vec![
        tick_deltas(first_tick, rows.ticks.iter().copied()),
        call_deltas(rows.calls.iter().copied()),
        u8s(rows.roles.iter().copied()),
        u32s(rows.slots.iter().copied()),
        u32s(rows.layouts.iter().copied()),
        u32s(rows.notes.iter().copied()),
        Arc::new(signatures.finish()),
    ])
}

/// Distance of each tick from the one before; the first from the batch's first tick.
fn tick_deltas(first: u64, ticks: impl Iterator<Item = u64>) -> ArrayRef {
    let mut before = first;
    u32s(ticks.map(|tick| (tick - std::mem::replace(&mut before, tick)) as u32))
}

/// Distance of each time from the one before; the first from the writer's creation.
fn time_deltas(times: impl Iterator<Item = u64>) -> ArrayRef {
    let mut before = 0;
    u64s(times.map(|time| time - std::mem::replace(&mut before, time)))
}

/// Signed distance of each call from the one before; the first from 0.
fn call_deltas(calls: impl Iterator<Item = u64>) -> ArrayRef {
    let mut before = 0;
    i64s(calls.map(|call| call.wrapping_sub(std::mem::replace(&mut before, call)) as i64))
}

fn ids(first: u32, count: usize) -> ArrayRef {
    u32s((first..).take(count))
}

fn texts(values: &[String]) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn u8s(values: impl Iterator<Item = u8>) -> ArrayRef {
    Arc::new(UInt8Array::from_iter_values(values))
}

fn u32s(values: impl Iterator<Item = u32>) -> ArrayRef {
    Arc::new(UInt32Array::from_iter_values(values))
}

fn i32s(values: impl Iterator<Item = i32>) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(values))
}

fn u64s(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}

fn i64s(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}
