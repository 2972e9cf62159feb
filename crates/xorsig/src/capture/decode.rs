//! The bytes of a batch file to its header and records, every size and checksum checked.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Int32Type, Int64Type, UInt8Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, FixedSizeBinaryArray, RecordBatch};

use super::header::{ENTRY_BYTES, Entry, HEADER_BYTES, Header, crc64};
use super::records::{CallRow, EndRow, LayoutRow, MarkRow, Records, SpanRow, Tensors, ValueRow};
use super::schema::Kind;
use super::stream::read_section;

/// Reads one batch file.
///
/// # Errors
/// The reason, when the bytes are not a batch of this format version.
pub fn decode(file: &[u8]) -> Result<(Header, Records), String> {
    let header = Header::decode(file)?;
    let payload = &file[HEADER_BYTES..];
    if payload.len() as u64 != header.payload_bytes {
        return Err(format!(
            "the payload has {} bytes instead of {}",
            payload.len(),
            header.payload_bytes
        ));
    }
    if crc64(payload) != header.payload_crc {
        return Err("the payload's checksum is wrong".into());
    }
    let mut records = Records::default();
    let mut end = (header.sections as usize).saturating_mul(ENTRY_BYTES);
    let table = payload
        .get(..end)
        .ok_or("the section table is longer than the payload")?;
    let mut last = None;
    for entry in table.as_chunks::<ENTRY_BYTES>().0 {
        let entry = Entry::decode(entry).ok_or("a reserved byte of the section table is set")?;
        let kind = Kind::from_number(entry.kind)
            .filter(|kind| last.is_none_or(|last| last < *kind))
            .ok_or_else(|| format!("section {} is unknown or out of order", entry.kind))?;
        last = Some(kind);
        if entry.offset != end as u64 {
            return Err(format!(
                "the {kind:?} section does not follow the one before it"
            ));
        }
        let begin = end;
        end = begin.saturating_add(usize::try_from(entry.length).unwrap_or(usize::MAX));
        let section = payload
            .get(begin..end)
            .ok_or("a section ends outside the payload")?;
        let schema = kind.schema(header.regions);
        read_section(section, &schema, entry.rows)
            .and_then(|batch| fill(&mut records, kind, &header, &batch))
            .map_err(|reason| format!("the {kind:?} section is unreadable: {reason}"))?;
    }
    if end != payload.len() {
        return Err("bytes follow the last section".into());
    }
    check_counts(&header, &records)?;
    Ok((header, records))
}

/// The header's counts and tick range against the records.
fn check_counts(header: &Header, records: &Records) -> Result<(), String> {
    if records.len() as u64 != header.records {
        return Err(format!(
            "{} records are not the header's {}",
            records.len(),
            header.records
        ));
    }
    let ticked = records.ticked() as u64;
    let expected = match ticked {
        0 => (header.first_tick, header.last_tick) == (0, 0),
        n => {
            header.first_tick > 0 && header.first_tick.checked_add(n - 1) == Some(header.last_tick)
        }
    };
    if !expected {
        return Err(format!(
            "{ticked} ticks do not fill the header's range {} to {}",
            header.first_tick, header.last_tick
        ));
    }
    // Every tick once: each section ascends, all lie in the range, and their number fills it.
    let mut seen = vec![false; records.ticked()];
    let ticks = (records.calls.iter().map(|r| r.tick))
        .chain(records.ends.iter().map(|r| r.tick))
        .chain(records.tensors.ticks.iter().copied())
        .chain(records.values.iter().map(|r| r.tick))
        .chain(records.marks.iter().map(|r| r.tick));
    for tick in ticks {
        let index = tick
            .checked_sub(header.first_tick)
            .and_then(|i| usize::try_from(i).ok());
        match index.and_then(|i| seen.get_mut(i)) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(format!("tick {tick} is repeated or out of range")),
        }
    }
    Ok(())
}

/// Adds the rows of a section, whose schema was checked, to `records`.
fn fill(
    records: &mut Records,
    kind: Kind,
    header: &Header,
    batch: &RecordBatch,
) -> Result<(), String> {
    let u8s = |i| values::<UInt8Type>(batch, i);
    let u32s = |i| values::<UInt32Type>(batch, i);
    let i32s = |i| values::<Int32Type>(batch, i);
    let u64s = |i| values::<UInt64Type>(batch, i);
    let i64s = |i| values::<Int64Type>(batch, i);
    let rows = 0..batch.num_rows();
    let ticks = || absolute(header.first_tick, u32s(0).iter().map(|d| u64::from(*d)));
    match kind {
        Kind::Names => {
            records.first_name = first_id(u32s(0))?;
            records.names = texts(batch, 1);
        }
        Kind::Texts => records.texts = texts(batch, 0),
        Kind::Layouts => {
            records.first_layout = first_id(u32s(0))?;
            let (shapes, strides) = (list(batch, 2), list(batch, 3));
            records.layouts = rows
                .map(|i| LayoutRow {
                    dtype: u32s(1)[i],
                    shape: shapes(i).unwrap_or_default(),
                    strides: strides(i),
                    device: u32s(4)[i],
                    kind: u32s(5)[i],
                    logical_nbytes: u64s(6)[i],
                })
                .collect();
        }
        Kind::Calls => {
            let (ticks, times) = (ticks()?, absolute(0, u64s(1).iter().copied())?);
            records.calls = rows
                .map(|i| CallRow {
                    tick: ticks[i],
                    time_ns: times[i],
                    parent: u64s(2)[i],
                    site: u32s(3)[i],
                    step: i64s(4)[i],
                    phase: u8s(5)[i],
                    thread: u32s(6)[i],
                    flags: u32s(7)[i],
                    callee: u32s(8)[i],
                })
                .collect();
        }
        Kind::Ends => {
            let (ticks, times) = (ticks()?, absolute(0, u64s(1).iter().copied())?);
            records.ends = rows
                .map(|i| EndRow {
                    tick: ticks[i],
                    time_ns: times[i],
                    call: ticks[i].wrapping_sub(u64s(2)[i]),
                    status: u8s(3)[i],
                    flags: u32s(4)[i],
                    error: u32s(5)[i],
                })
                .collect();
        }
        Kind::Tensors => {
            records.tensors = Tensors {
                ticks: ticks()?,
                calls: calls(i64s(1)),
                roles: u8s(2).to_vec(),
                slots: u32s(3).to_vec(),
                layouts: u32s(4).to_vec(),
                notes: u32s(5).to_vec(),
                present: present(batch.column(6)),
                signatures: signatures(batch.column(6).as_fixed_size_binary()),
            };
        }
        Kind::Values => {
            let (ticks, calls) = (ticks()?, calls(i64s(1)));
            records.values = rows
                .map(|i| ValueRow {
                    tick: ticks[i],
                    call: calls[i],
                    role: u8s(2)[i],
                    slot: u32s(3)[i],
                    text: u32s(4)[i],
                })
                .collect();
        }
        Kind::Marks => {
            let (ticks, times) = (ticks()?, absolute(0, u64s(1).iter().copied())?);
            records.marks = rows
                .map(|i| MarkRow {
                    tick: ticks[i],
                    time_ns: times[i],
                    kind: u8s(2)[i],
                    step: i64s(3)[i],
                    name: u32s(4)[i],
                    text: u32s(5)[i],
                })
                .collect();
        }
        Kind::Spans => {
            records.spans = rows
                .map(|i| SpanRow {
                    file: u32s(0)[i],
                    qualname: u32s(1)[i],
                    position: [i32s(2)[i], i32s(3)[i], i32s(4)[i], i32s(5)[i]],
                    operator: u32s(6)[i],
                    count: u64s(7)[i],
                    flags: u32s(8)[i],
                    example: u32s(9)[i],
                })
                .collect();
        }
    }
    Ok(())
}

fn values<T: ArrowPrimitiveType>(batch: &RecordBatch, column: usize) -> &[T::Native] {
    batch.column(column).as_primitive::<T>().values()
}

fn texts(batch: &RecordBatch, column: usize) -> Vec<String> {
    let texts = batch.column(column).as_string::<i32>();
    (0..texts.len())
        .map(|row| texts.value(row).to_owned())
        .collect()
}

/// Which rows have a value.
fn present(column: &dyn Array) -> Vec<bool> {
    match column.nulls() {
        Some(nulls) => nulls.iter().collect(),
        None => vec![true; column.len()],
    }
}

/// The signatures of all rows, zero where there is none.
fn signatures(column: &FixedSizeBinaryArray) -> Vec<u8> {
    let width = column.value_length() as usize;
    let mut bytes = column.value_data()[..width * column.len()].to_vec();
    for row in (0..column.len()).filter(|row| column.is_null(*row)) {
        bytes[width * row..][..width].fill(0);
    }
    bytes
}

fn list(batch: &RecordBatch, column: usize) -> impl Fn(usize) -> Option<Vec<i64>> {
    let lists = batch.column(column).as_list::<i32>();
    move |i| {
        lists
            .is_valid(i)
            .then(|| lists.value(i).as_primitive::<Int64Type>().values().to_vec())
    }
}

/// The first id of a section whose ids follow one another.
fn first_id(ids: &[u32]) -> Result<u32, String> {
    let first = ids.first().copied().unwrap_or_default();
    let expected = (u64::from(first)..).zip(ids);
    if expected
        .into_iter()
        .all(|(want, id)| want == u64::from(*id))
    {
        Ok(first)
    } else {
        Err("ids do not follow one another".into())
    }
}

/// Undoes differences of ascending values.
fn absolute(first: u64, deltas: impl Iterator<Item = u64>) -> Result<Vec<u64>, String> {
    let mut value = first;
    deltas
        .map(|delta| {
            value = value
                .checked_add(delta)
                .ok_or("a tick or a time overflows")?;
            Ok(value)
        })
        .collect()
}

/// Undoes signed differences of calls.
fn calls(deltas: &[i64]) -> Vec<u64> {
    let mut call = 0u64;
    deltas
        .iter()
        .map(|delta| {
            call = call.wrapping_add_signed(*delta);
            call
        })
        .collect()
}
