//! Receipts: a small text with a checksum, published once and never replaced.
//!
//! One line `xorsig-receipt 1 LENGTH CRC\n` (decimal bytes of the text, 16 lower-case hexadecimal
//! digits of its CRC-64/XZ), then the text in UTF-8, then the end of the file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::error::{CaptureError, Corrupt};
use super::header::crc64;
use super::publish::publish_beside;

/// No receipt is larger; it is refused before it is read.
pub const MAX_BYTES: u64 = 16 << 20;

/// Writes `text` as a receipt.
///
/// # Errors
/// [`CaptureError::Io`]; of kind `AlreadyExists` when the path is taken.
/// [`CaptureError::Invalid`] when the text is larger than [`MAX_BYTES`].
pub fn write(path: &Path, text: &str) -> Result<(), CaptureError> {
    let mut bytes = head(text.as_bytes()).into_bytes();
    bytes.extend_from_slice(text.as_bytes());
    if bytes.len() as u64 > MAX_BYTES {
        return Err(CaptureError::Invalid(format!(
            "a receipt holds at most {MAX_BYTES} bytes"
        )));
    }
    publish_beside(path, &bytes)
}

/// Reads the text of a receipt.
///
/// # Errors
/// [`CaptureError::Io`], or [`CaptureError::Corrupt`] when a byte is not what was written.
pub fn read(path: &Path) -> Result<String, CaptureError> {
    let file = File::open(path).map_err(CaptureError::io("open", path))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(CaptureError::io("read", path))?;
    parse(&bytes).map_err(|reason| {
        Corrupt {
            path: path.to_owned(),
            sequence: None,
            reason,
        }
        .into()
    })
}

/// The text of a receipt's bytes.
///
/// # Errors
/// The reason, when a byte is not what [`write`] puts there.
pub fn parse(bytes: &[u8]) -> Result<String, String> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("a receipt holds at most {MAX_BYTES} bytes"));
    }
    let end = bytes
        .iter()
        .position(|b| *b == b'\n')
        .ok_or("the first line has no end")?;
    let (line, text) = bytes.split_at(end + 1);
    // The first line follows from the text: comparing it whole leaves no other spelling.
    if line != head(text).as_bytes() {
        return Err("the first line does not belong to the text".into());
    }
    String::from_utf8(text.to_vec()).map_err(|_| "the text is not UTF-8".into())
}

fn head(text: &[u8]) -> String {
    format!("xorsig-receipt 1 {} {:016x}\n", text.len(), crc64(text))
}
