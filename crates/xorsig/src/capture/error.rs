//! What can go wrong with a capture.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A file of a capture that is not what the format promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// The file, or the rank's directory when a file is missing.
    pub path: PathBuf,
    /// The batch's sequence number; `None` for a receipt or a directory.
    pub sequence: Option<u64>,
    /// What is wrong, without the path.
    pub reason: String,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}; the capture is incomplete, record it again",
            self.path.display(),
            self.reason
        )
    }
}

impl std::error::Error for Corrupt {}

/// Any failure while reading or writing a capture.
#[derive(Debug)]
pub enum CaptureError {
    /// A file's content breaks the format.
    Corrupt(Corrupt),
    /// The operating system refused an operation.
    Io {
        /// What was being done.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An argument is out of its range.
    Invalid(String),
}

impl CaptureError {
    /// For `map_err`: attaches what was done and where.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt(corrupt) => corrupt.fmt(f),
            Self::Io {
                action,
                path,
                source,
            } => {
                write!(f, "cannot {action} {}: {source}", path.display())
            }
            Self::Invalid(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for CaptureError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Corrupt(corrupt) => Some(corrupt),
            Self::Io { source, .. } => Some(source),
            Self::Invalid(_) => None,
        }
    }
}

impl From<Corrupt> for CaptureError {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}
