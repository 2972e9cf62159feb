//! Capture files: what a recorder saw in one rank, in small batches that are each complete.
//!
//! A rank's directory holds `batch-00000000.xsb` and following. [`writer`] encodes on its own
//! thread ([`encode`]) and publishes ([`publish`]); [`reader`] checks and decodes ([`decode`]).
//! `docs/formats/batch.md` describes the bytes, `docs/formats/receipt.md` the receipts.

mod ahead;
pub mod append;
mod columns;
mod continuity;
pub mod decode;
pub mod encode;
pub mod error;
pub mod fork;
pub mod header;
pub mod intern;
mod kinds;
pub(crate) mod load;
mod lz4;
pub mod pending;
pub mod publish;
mod queue;
pub mod reader;
pub mod receipt;
pub mod records;
mod thread;
pub mod writer;

pub use error::{CaptureError, Corrupt};
pub use header::FORMAT_VERSION;
pub use reader::{CaptureReader, Expected, Summary};
pub use writer::{CaptureWriter, Options, Stats};

/// Parses a capture id: 32 hexadecimal digits.
///
/// # Errors
/// [`CaptureError::Invalid`] for anything else.
pub fn parse_capture_id(text: &str) -> Result<[u8; 16], CaptureError> {
    let wrong = || {
        CaptureError::Invalid(format!(
            "capture_id must be 32 hexadecimal digits, not {text:?}"
        ))
    };
    if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    u128::from_str_radix(text, 16)
        .map(u128::to_be_bytes)
        .map_err(|_| wrong())
}

/// Name of the file of batch `sequence`.
pub fn batch_file_name(sequence: u64) -> String {
    format!("batch-{sequence:08}.xsb")
}

/// The sequence number of a file named by [`batch_file_name`].
pub fn batch_sequence(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("batch-")?.strip_suffix(".xsb")?;
    let sequence = digits.parse().ok()?;
    (batch_file_name(sequence) == name).then_some(sequence)
}

#[cfg(test)]
pub(crate) mod tests;
