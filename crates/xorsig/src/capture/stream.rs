//! Reads the Arrow IPC stream of a section, after checking every size that it declares.
//!
//! The Arrow reader allocates what a stream asks for. A stream is therefore walked first, and
//! refused when a message, a buffer or an uncompressed size could not come from these bytes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::root_as_message;
use arrow_schema::SchemaRef;

/// Marks the begin of an encapsulated message.
const CONTINUATION: [u8; 4] = [0xFF; 4];
/// An LZ4 block cannot expand more than this many times.
const MAX_RATIO: u64 = 255;
/// Prefix of a compressed buffer that is stored as it is.
const STORED: i64 = -1;

/// The one record batch of `section`, which has `schema` and `rows` rows.
///
/// # Errors
/// The reason, when the stream is anything else.
pub fn read_section(section: &[u8], schema: &SchemaRef, rows: u32) -> Result<RecordBatch, String> {
    check_sizes(section, rows)?;
    // The Arrow reader is meant not to panic on hostile bytes; if it does, the file is refused.
    catch_unwind(AssertUnwindSafe(|| decode(section, schema)))
        .unwrap_or_else(|_| Err("the Arrow reader failed on it".into()))
}

fn decode(section: &[u8], schema: &SchemaRef) -> Result<RecordBatch, String> {
    let mut reader = StreamReader::try_new(section, None).map_err(|e| e.to_string())?;
    if reader.schema() != *schema {
        return Err("the schema is not the section's".into());
    }
    match (reader.next(), reader.next()) {
        (Some(Ok(batch)), None) => Ok(batch),
        (Some(Err(error)), _) | (_, Some(Err(error))) => Err(error.to_string()),
        _ => Err("there is not exactly one record batch".into()),
    }
}

/// Walks the messages: a schema, a record batch, the end mark, nothing after it.
fn check_sizes(section: &[u8], rows: u32) -> Result<(), String> {
    let mut rest = section;
    let mut messages = 0;
    loop {
        if take(&mut rest, 4)? != CONTINUATION {
            return Err("a message does not begin with the continuation mark".into());
        }
        let length = take(&mut rest, 4)?;
        let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
        if length == 0 {
            break;
        }
        let metadata = take(&mut rest, u64::from(length))?;
        let message = root_as_message(metadata).map_err(|e| format!("a message is broken: {e}"))?;
        let body =
            u64::try_from(message.bodyLength()).map_err(|_| "a body's length is negative")?;
        let body = take(&mut rest, body)?;
        match (messages, message.header_as_record_batch()) {
            (0, None) if message.header_as_schema().is_some() => {}
            (1, Some(batch)) => check_batch(&batch, body, rows)?,
            _ => return Err("there is an unexpected message".into()),
        }
        messages += 1;
    }
    if messages == 2 && rest.is_empty() {
        Ok(())
    } else {
        Err("the stream does not end where the section does".into())
    }
}

fn check_batch(batch: &arrow_ipc::RecordBatch<'_>, body: &[u8], rows: u32) -> Result<(), String> {
    if batch.length() != i64::from(rows) {
        return Err(format!(
            "{} rows are not the section table's {rows}",
            batch.length()
        ));
    }
    let compressed = batch.compression().is_some();
    for buffer in batch.buffers().iter().flatten() {
        let begin =
            usize::try_from(buffer.offset()).map_err(|_| "a buffer's offset is negative")?;
        let length =
            usize::try_from(buffer.length()).map_err(|_| "a buffer's length is negative")?;
        let end = begin
            .checked_add(length)
            .ok_or("a buffer's end overflows")?;
        let bytes = body
            .get(begin..end)
            .ok_or("a buffer lies outside its message")?;
        if !compressed || bytes.is_empty() {
            continue;
        }
        let (prefix, packed) = bytes
            .split_first_chunk::<8>()
            .ok_or("a compressed buffer has no length")?;
        let declared = i64::from_le_bytes(*prefix);
        if declared != STORED {
            let limit = (packed.len() as u64).saturating_mul(MAX_RATIO);
            if u64::try_from(declared).map_or(true, |size| size > limit) {
                return Err(format!(
                    "{} bytes cannot expand to {declared}",
                    packed.len()
                ));
            }
        }
    }
    Ok(())
}

/// Splits `length` bytes off the front of `rest`.
fn take<'a>(rest: &mut &'a [u8], length: u64) -> Result<&'a [u8], String> {
    let length = usize::try_from(length).map_err(|_| "a length does not fit memory")?;
    let (head, tail) = rest
        .split_at_checked(length)
        .ok_or("it ends inside a message")?;
    *rest = tail;
    Ok(head)
}
