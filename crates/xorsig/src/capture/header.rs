//! The fixed header and the section table of a batch file.
//!
//! All integers are little-endian. The payload (section table, then sections) follows the header
//! at once, and the file ends with it.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `\x89XSB\r\n\x1a\n` |
//! | 8 | 2 | format version |
//! | 10 | 2 | header length, 112 |
//! | 12 | 4 | rank |
//! | 16 | 16 | capture id |
//! | 32 | 8 | sequence number, from 0 |
//! | 40 | 8 | unix time of the writer's creation, ns |
//! | 48 | 8 | first tick, 0 if no record has one |
//! | 56 | 8 | last tick, 0 if no record has one |
//! | 64 | 8 | record count |
//! | 72 | 4 | section count |
//! | 76 | 4 | regions per fingerprint |
//! | 80 | 8 | payload length, bytes |
//! | 88 | 8 | payload CRC-64/XZ |
//! | 96 | 12 | zero |
//! | 108 | 4 | CRC-32 of bytes 0 to 107 |

use crate::fingerprint::MAX_REGIONS;

/// Version of the batch file; another version is not read.
pub const FORMAT_VERSION: u16 = 1;
/// Length of the header, bytes.
pub const HEADER_BYTES: usize = 112;
/// Length of one entry of the section table, bytes.
pub const ENTRY_BYTES: usize = 24;

/// No batch has a larger payload; one that says so is refused before it is read. A writer stays
/// below it: it cuts a batch that has 2^24 records, 2^28 bytes of signatures or 2^24 of texts,
/// and a text has 2^28 bytes at most.
pub const MAX_PAYLOAD_BYTES: u64 = 1 << 31;

/// A high bit, both line ends and a DOS end-of-file catch transfers that rewrite bytes.
const MAGIC: [u8; 8] = *b"\x89XSB\r\n\x1a\n";
const CRC_AT: usize = HEADER_BYTES - 4;

/// The header's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Rank that wrote the batch.
    pub rank: u32,
    /// Identity of the capture.
    pub capture_id: [u8; 16],
    /// Position of the batch in its rank, from 0.
    pub sequence: u64,
    /// Unix time of the writer's creation, ns; the same in all batches of a rank.
    pub created_unix_ns: u64,
    /// Tick of the first record that has one, or 0.
    pub first_tick: u64,
    /// Tick of the last record that has one, or 0.
    pub last_tick: u64,
    /// Rows of all record sections (names and layouts are not records).
    pub records: u64,
    /// Entries of the section table.
    pub sections: u32,
    /// Regions per fingerprint.
    pub regions: u32,
    /// Bytes after the header.
    pub payload_bytes: u64,
    /// CRC-64/XZ of the payload.
    pub payload_crc: u64,
}

impl Header {
    /// The header's bytes, checksum included.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&MAGIC);
        put(&FORMAT_VERSION.to_le_bytes());
        put(&(HEADER_BYTES as u16).to_le_bytes());
        put(&self.rank.to_le_bytes());
        put(&self.capture_id);
        put(&self.sequence.to_le_bytes());
        put(&self.created_unix_ns.to_le_bytes());
        put(&self.first_tick.to_le_bytes());
        put(&self.last_tick.to_le_bytes());
        put(&self.records.to_le_bytes());
        put(&self.sections.to_le_bytes());
        put(&self.regions.to_le_bytes());
        put(&self.payload_bytes.to_le_bytes());
        put(&self.payload_crc.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads and checks a header.
    ///
    /// # Errors
    /// The reason, when a byte is not what a writer of this version puts there.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(format!("{} bytes cannot hold a header", bytes.len()));
        };
        if bytes[..8] != MAGIC {
            return Err("the magic number is wrong".into());
        }
        if u32_at(bytes, CRC_AT) != crc32fast::hash(&bytes[..CRC_AT]) {
            return Err("the header's checksum is wrong".into());
        }
        let version = u16_at(bytes, 8);
        if version != FORMAT_VERSION {
            return Err(format!("format version {version} is not {FORMAT_VERSION}"));
        }
        if usize::from(u16_at(bytes, 10)) != HEADER_BYTES || bytes[96..CRC_AT] != [0; 12] {
            return Err("the header's length or its reserved bytes are wrong".into());
        }
        let mut capture_id = [0; 16];
        capture_id.copy_from_slice(&bytes[16..32]);
        let header = Self {
            rank: u32_at(bytes, 12),
            capture_id,
            sequence: u64_at(bytes, 32),
            created_unix_ns: u64_at(bytes, 40),
            first_tick: u64_at(bytes, 48),
            last_tick: u64_at(bytes, 56),
            records: u64_at(bytes, 64),
            sections: u32_at(bytes, 72),
            regions: u32_at(bytes, 76),
            payload_bytes: u64_at(bytes, 80),
            payload_crc: u64_at(bytes, 88),
        };
        if header.payload_bytes > MAX_PAYLOAD_BYTES {
            return Err(format!("{} bytes are no payload", header.payload_bytes));
        }
        if !(1..=MAX_REGIONS).contains(&(header.regions as usize)) {
            return Err(format!(
                "{} regions are not 1 to {MAX_REGIONS}",
                header.regions
            ));
        }
        Ok(header)
    }
}

/// One entry of the section table: kind u16, zero u16, rows u32, offset u64, length u64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the section's [`Kind`](super::schema::Kind).
    pub kind: u16,
    /// Rows of the section.
    pub rows: u32,
    /// Begin of the section, bytes from the begin of the payload.
    pub offset: u64,
    /// Length of the section, bytes.
    pub length: u64,
}

impl Entry {
    /// The entry's bytes.
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[0..2].copy_from_slice(&self.kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.rows.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// Reads an entry; `None` if a reserved byte is not zero.
    pub fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        (bytes[2..4] == [0, 0]).then(|| Self {
            kind: u16_at(bytes, 0),
            rows: u32_at(bytes, 4),
            offset: u64_at(bytes, 8),
            length: u64_at(bytes, 16),
        })
    }
}

/// CRC-64/XZ of `bytes`.
pub fn crc64(bytes: &[u8]) -> u64 {
    let mut digest = crc64fast::Digest::new();
    digest.write(bytes);
    digest.sum64()
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}
