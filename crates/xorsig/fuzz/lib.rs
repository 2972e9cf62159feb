//! What must hold for any bytes, and the replay of inputs that were found worth keeping.
//!
//! Each function takes arbitrary bytes and fails if xorsig panics, believes a damaged file, or
//! reserves memory that the bytes do not justify (the fuzzer limits it). Checksums would stop
//! nearly every input at the door; they are therefore made right first.

#[cfg(feature = "tables")]
mod tables;

use xorsig::capture::decode::decode;
use xorsig::capture::encode::{Identity, encode};
use xorsig::capture::header::{HEADER_BYTES, Header, crc64};
use xorsig::capture::receipt;

#[cfg(feature = "tables")]
pub use tables::materialize;

const CAPTURE_ID: [u8; 16] = *b"fuzzed capture!!";

/// A batch file: refused, or read and then written again to something equal.
pub fn batch(bytes: &[u8]) {
    let _ = decode(bytes);
    let sealed = seal(bytes, 0);
    if let Ok((header, records)) = decode(&sealed) {
        let identity = Identity {
            capture_id: header.capture_id,
            rank: header.rank,
            regions: header.regions,
            created_unix_ns: header.created_unix_ns,
        };
        let again = encode(&identity, header.sequence, header.first_tick, &records);
        assert_eq!(decode(&again).map(|(_, records)| records), Ok(records));
    }
}

/// A receipt: refused, or the only spelling of its text.
pub fn receipt(bytes: &[u8]) {
    if let Ok(text) = receipt::parse(bytes) {
        assert!(bytes.ends_with(text.as_bytes()));
    }
    // The same bytes as the text behind a right first line.
    let line = format!("xorsig-receipt 1 {} {:016x}\n", bytes.len(), crc64(bytes));
    let whole = [line.as_bytes(), bytes].concat();
    assert_eq!(
        receipt::parse(&whole).ok(),
        String::from_utf8(bytes.to_vec()).ok()
    );
    for cut in [1, line.len() - 1, whole.len() - 1] {
        assert!(receipt::parse(&whole[..cut]).is_err());
    }
}

/// `bytes` as the payload and the free fields of a header whose checksums, sizes, sequence and
/// identity are right.
fn seal(bytes: &[u8], sequence: u64) -> Vec<u8> {
    let mut fields = [0; 32];
    let taken = bytes.len().min(fields.len());
    fields[..taken].copy_from_slice(&bytes[..taken]);
    let payload = &bytes[taken..];
    let number = |at: usize| {
        let mut number = [0; 8];
        number.copy_from_slice(&fields[at..at + 8]);
        u64::from_le_bytes(number)
    };
    let (first_tick, records) = (number(0), number(8));
    let header = Header {
        rank: 0,
        capture_id: CAPTURE_ID,
        sequence,
        created_unix_ns: 1,
        first_tick,
        last_tick: number(16),
        records,
        sections: u32::from(fields[24]),
        regions: u32::from(fields[25]),
        payload_bytes: payload.len() as u64,
        payload_crc: crc64(payload),
    };
    [&header.encode()[..], payload].concat()
}

/// The opposite of [`seal`]: what becomes this batch.
pub fn unseal(file: &[u8]) -> Option<Vec<u8>> {
    let header = Header::decode(file).ok()?;
    let mut bytes = Vec::new();
    for field in [header.first_tick, header.records, header.last_tick] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.extend_from_slice(&[
        header.sections as u8,
        header.regions as u8,
        0,
        0,
        0,
        0,
        0,
        0,
    ]);
    bytes.extend_from_slice(&file[HEADER_BYTES..]);
    Some(bytes)
}
