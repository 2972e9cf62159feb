//! One batch from its file, whose size is checked against what its header declares.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::decode::decode_into;
use super::error::{CaptureError, Corrupt};
use super::header::{HEADER_BYTES, Header};
use super::records::Records;
use super::{batch_file_name, batch_sequence};

/// A batch and its file. Loading another into it saves asking the system for fresh memory, which
/// costs as much as decoding.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The header, once something was loaded.
    pub header: Option<Header>,
    /// The records.
    pub records: Records,
    /// The file.
    pub file: Vec<u8>,
}

/// Sequence numbers of the batches in a rank's directory, ascending.
///
/// # Errors
/// [`CaptureError::Io`] if the directory cannot be listed.
pub fn list(directory: &Path) -> Result<Vec<u64>, CaptureError> {
    let failed = || CaptureError::io("list", directory);
    let mut sequences = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed())? {
        let name = entry.map_err(failed())?.file_name();
        sequences.extend(name.to_str().and_then(batch_sequence));
    }
    sequences.sort_unstable();
    Ok(sequences)
}

impl Loaded {
    /// Reads batch `sequence` of a rank's directory.
    ///
    /// # Errors
    /// [`CaptureError::Corrupt`] for a damaged file, [`CaptureError::Io`] if it cannot be read.
    pub fn load(&mut self, directory: &Path, sequence: u64) -> Result<(), CaptureError> {
        let path = directory.join(batch_file_name(sequence));
        let decoded = read(&path, &mut self.file)?
            .and_then(|()| decode_into(&self.file, &mut self.records))
            .map_err(|reason| corrupt(&path, sequence, reason))?;
        self.header = Some(decoded);
        Ok(())
    }
}

/// The bytes of the file, read only once its header and its size agree.
fn read(path: &PathBuf, bytes: &mut Vec<u8>) -> Result<Result<(), String>, CaptureError> {
    let failed = || CaptureError::io("read", path);
    let mut file = File::open(path).map_err(failed())?;
    let size = file.metadata().map_err(failed())?.len();
    bytes.clear();
    let mut head = file.by_ref().take(HEADER_BYTES as u64);
    head.read_to_end(bytes).map_err(failed())?;
    let header = match Header::decode(bytes) {
        Ok(header) => header,
        Err(reason) => return Ok(Err(reason)),
    };
    let payload = size.saturating_sub(HEADER_BYTES as u64);
    if payload != header.payload_bytes {
        let declared = header.payload_bytes;
        let reason = format!("the payload has {payload} bytes instead of {declared}");
        return Ok(Err(reason));
    }
    bytes.reserve(payload as usize);
    // A file that changes meanwhile has another length here, or fails its checksum.
    file.take(payload).read_to_end(bytes).map_err(failed())?;
    Ok(Ok(()))
}

fn corrupt(path: &Path, sequence: u64, reason: String) -> Corrupt {
    Corrupt {
        path: path.to_owned(),
        sequence: Some(sequence),
        reason,
    }
}
