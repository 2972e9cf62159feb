//! The bytes of a batch file to its header and records, every size and checksum checked.

use super::columns::ColumnReader;
use super::header::{ENTRY_BYTES, Entry, HEADER_BYTES, Header, crc64};
use super::kinds::Kind;
use super::records::{CallRow, EndRow, LayoutRow, MarkRow, Records, SpanRow, Tensors, ValueRow};

/// Reads one batch file.
///
/// # Errors
/// The reason, when the bytes are not a batch of this format version.
pub fn decode(file: &[u8]) -> Result<(Header, Records), String> {
    let mut records = Records::default();
    let header = decode_into(file, &mut records)?;
    Ok((header, records))
}

/// As [`decode`], into the memory of a batch that is not needed any more.
///
/// # Errors
/// As [`decode`]; `records` then holds no batch.
pub fn decode_into(file: &[u8], records: &mut Records) -> Result<Header, String> {
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
    // The columns of tensors are overwritten; clearing them would write their memory twice.
    let tensors = std::mem::take(&mut records.tensors);
    records.clear();
    records.tensors = tensors;
    let mut tensors_seen = false;
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
        tensors_seen |= kind == Kind::Tensors;
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
        let mut columns = ColumnReader::new(section);
        fill(records, kind, &header, entry.rows as usize, &mut columns)
            .and_then(|()| columns.finish())
            .map_err(|reason| format!("the {kind:?} section is unreadable: {reason}"))?;
    }
    if end != payload.len() {
        return Err("bytes follow the last section".into());
    }
    if !tensors_seen {
        records.tensors.clear();
    }
    check_counts(&header, records)?;
    Ok(header)
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
    // Every tick once: all lie in the range, none comes twice, and their number fills it.
    let mut seen = vec![false; records.ticked()];
    let mut check = |tick: u64| {
        let index = tick.wrapping_sub(header.first_tick) as usize;
        match seen.get_mut(index) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(format!("tick {tick} is repeated or out of range")),
        }
        Ok(())
    };
    records.calls.iter().try_for_each(|r| check(r.tick))?;
    records.ends.iter().try_for_each(|r| check(r.tick))?;
    records.tensors.ticks.iter().try_for_each(|t| check(*t))?;
    records.values.iter().try_for_each(|r| check(r.tick))?;
    records.marks.iter().try_for_each(|r| check(r.tick))?;
    records.withdrawn.iter().try_for_each(|t| check(*t))
}

/// The rows of a section whose columns follow one another in the order of the fields given: each
/// field is read as a column of numbers, or as the vector behind its colon.
macro_rules! rows {
    ($from:ident, $rows:ident => $row:ident { $($field:ident $(: $column:expr)?),* $(,)? }) => {{
        $(let $field = rows!(@column $from, $rows $(, $column)?);)*
        (0..$rows).map(move |i| $row { $($field: $field[i]),* })
    }};
    (@column $from:ident, $rows:ident) => { $from.column($rows)? };
    (@column $from:ident, $rows:ident, $column:expr) => { $column };
}

/// Adds the rows of a section to `records`.
fn fill(
    records: &mut Records,
    kind: Kind,
    header: &Header,
    rows: usize,
    from: &mut ColumnReader<'_>,
) -> Result<(), String> {
    let first = header.first_tick;
    match kind {
        Kind::Names => {
            records.first_name = from.column(1)?[0];
            records.names = from.texts(rows)?;
        }
        Kind::Layouts => {
            records.first_layout = from.column(1)?[0];
            layouts(rows, from, &mut records.layouts)?;
        }
        Kind::Texts => records.texts = from.texts(rows)?,
        Kind::Calls => records.calls.extend(rows!(from, rows => CallRow {
            tick: ticks(first, rows, from)?,
            time_ns: times(rows, from)?,
            parent, site, step, phase, thread, flags, callee,
        })),
        Kind::Ends => records.ends.extend(rows!(from, rows => EndRow {
            tick: ticks(first, rows, from)?,
            time_ns: times(rows, from)?,
            call: distances(&tick, from)?,
            status, flags, error,
        })),
        Kind::Tensors => tensors(header, rows, from, &mut records.tensors)?,
        Kind::Values => records.values.extend(rows!(from, rows => ValueRow {
            tick: ticks(first, rows, from)?,
            call: calls(rows, from)?,
            role, slot, text,
        })),
        Kind::Marks => records.marks.extend(rows!(from, rows => MarkRow {
            tick: ticks(first, rows, from)?,
            time_ns: times(rows, from)?,
            kind, step, name, text,
        })),
        Kind::Spans => records.spans.extend(rows!(from, rows => SpanRow {
            file, qualname,
            position: positions(rows, from)?,
            operator, count, flags, example,
        })),
        Kind::Withdrawn => records.withdrawn = ticks(first, rows, from)?,
    }
    Ok(())
}

fn layouts(
    rows: usize,
    from: &mut ColumnReader<'_>,
    out: &mut Vec<LayoutRow>,
) -> Result<(), String> {
    let dtypes: Vec<u32> = from.column(rows)?;
    let shapes = from.lists(rows)?;
    let strided = flags(from.column(rows)?)?;
    let strides = from.lists(rows)?;
    let devices: Vec<u32> = from.column(rows)?;
    let kinds: Vec<u32> = from.column(rows)?;
    let sizes: Vec<u64> = from.column(rows)?;
    for (i, (shape, strides)) in shapes.into_iter().zip(strides).enumerate() {
        out.push(LayoutRow {
            dtype: dtypes[i],
            shape,
            strides: strided[i].then_some(strides),
            device: devices[i],
            kind: kinds[i],
            logical_nbytes: sizes[i],
        });
    }
    Ok(())
}

/// The largest part of a batch; its columns are decoded in place.
fn tensors(
    header: &Header,
    rows: usize,
    from: &mut ColumnReader<'_>,
    out: &mut Tensors,
) -> Result<(), String> {
    ascending(header.first_tick, from.column::<u32>(rows)?, &mut out.ticks)?;
    signed_sums(from.column(rows)?, &mut out.calls);
    from.numbers(rows, &mut out.roles)?;
    from.numbers(rows, &mut out.slots)?;
    from.numbers(rows, &mut out.layouts)?;
    from.numbers(rows, &mut out.notes)?;
    out.present = flags(from.column(rows)?)?;
    let width = 8 * header.regions as usize;
    let bytes = rows.checked_mul(width).ok_or("a column's size overflows")?;
    from.numbers(bytes, &mut out.signatures)
}

fn ticks(first: u64, rows: usize, from: &mut ColumnReader<'_>) -> Result<Vec<u64>, String> {
    let mut ticks = Vec::new();
    ascending(first, from.column::<u32>(rows)?, &mut ticks)?;
    Ok(ticks)
}

fn times(rows: usize, from: &mut ColumnReader<'_>) -> Result<Vec<u64>, String> {
    let mut times = Vec::new();
    ascending(0, from.column::<u64>(rows)?, &mut times)?;
    Ok(times)
}

fn calls(rows: usize, from: &mut ColumnReader<'_>) -> Result<Vec<u64>, String> {
    let mut calls = Vec::new();
    signed_sums(from.column(rows)?, &mut calls);
    Ok(calls)
}

/// The calls that stand at distances before ticks.
fn distances(ticks: &[u64], from: &mut ColumnReader<'_>) -> Result<Vec<u64>, String> {
    let distances: Vec<u64> = from.column(ticks.len())?;
    let calls = ticks.iter().zip(distances);
    Ok(calls
        .map(|(tick, distance)| tick.wrapping_sub(distance))
        .collect())
}

/// The positions whose parts are four columns.
fn positions(rows: usize, from: &mut ColumnReader<'_>) -> Result<Vec<[i32; 4]>, String> {
    let mut part = || from.column::<i32>(rows);
    let parts = [part()?, part()?, part()?, part()?];
    let position = |i: usize| [0, 1, 2, 3].map(|part: usize| parts[part][i]);
    Ok((0..rows).map(position).collect())
}

/// Undoes differences of ascending values, in place of what `out` holds.
fn ascending<D: Into<u64>>(first: u64, deltas: Vec<D>, out: &mut Vec<u64>) -> Result<(), String> {
    let mut value = first;
    let mut overflowed = false;
    out.clear();
    out.extend(deltas.into_iter().map(|delta| {
        let (sum, overflow) = value.overflowing_add(delta.into());
        overflowed |= overflow;
        value = sum;
        value
    }));
    if overflowed {
        return Err("a tick or a time overflows".into());
    }
    Ok(())
}

/// Undoes signed differences, in place of what `out` holds.
fn signed_sums(deltas: Vec<i64>, out: &mut Vec<u64>) {
    let mut value = 0u64;
    out.clear();
    out.extend(deltas.into_iter().map(|delta| {
        value = value.wrapping_add_signed(delta);
        value
    }));
}

/// Truth values, which are 0 or 1.
fn flags(bytes: Vec<u8>) -> Result<Vec<bool>, String> {
    if bytes.iter().any(|byte| *byte > 1) {
        return Err("a truth value is neither 0 nor 1".into());
    }
    Ok(bytes.into_iter().map(|byte| byte == 1).collect())
}
