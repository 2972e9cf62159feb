//! Flat Perfetto reports: tracks of slices, flows between them, tensors as annotations.
//!
//! The encoder is written by hand over [`proto`]: one packet sequence, texts interned, nothing
//! but track descriptors and track events. `docs/formats/perfetto.md` describes what a viewer
//! or a query finds in a report.

mod annotations;
mod columns;
mod encoder;
mod events;
mod fields;
mod intern;
mod plan;
mod proto;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;

use annotations::SlotColumns;
use encoder::Encoder;
use events::{Edge, edges};
use plan::plan;

/// Track that holds all others.
const ROOT_TRACK: u64 = 1;

/// Why a report could not be written.
#[derive(Debug)]
pub enum ReportError {
    /// A table lacks a column or holds a value that a report cannot have.
    Invalid(String),
    /// The file could not be written.
    Io {
        /// The report's path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl std::fmt::Display for ReportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Invalid(message) => f.write_str(message),
            Self::Io { path, source } => write!(f, "cannot write {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for ReportError {}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Slices.
    pub events: u64,
    /// Size of the file.
    pub bytes: u64,
}

/// The tables of a report.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// Name of the track that holds all others.
    pub name: &'a str,
    /// `id`, `track`, `ts_ns`, `dur_ns`, `name`; every other column is an annotation.
    pub slices: &'a [RecordBatch],
    /// Tensors of the slices, in order.
    pub slots: &'a [RecordBatch],
    /// `id`, `from`, `to`.
    pub flows: &'a [RecordBatch],
}

/// Writes a report, in place of an older one of the same path, once it is complete.
///
/// # Errors
/// [`ReportError`].
pub fn write(path: &Path, report: Report<'_>) -> Result<Written, ReportError> {
    let hidden = hidden_beside(path);
    let failed = |source| ReportError::Io {
        path: path.to_owned(),
        source,
    };
    let file = File::create(&hidden).map_err(failed)?;
    let written = encode(&report, file, path).and_then(|written| {
        fs::rename(&hidden, path).map_err(failed)?;
        Ok(written)
    });
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&hidden);
    }
    written
}

fn hidden_beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

fn encode(report: &Report<'_>, out: impl Write, path: &Path) -> Result<Written, ReportError> {
    let mut plan = plan(report)?;
    let mut slots: Vec<SlotColumns<'_>> = report
        .slots
        .iter()
        .map(SlotColumns::find)
        .collect::<Result<_, _>>()?;
    let mut encoder = Encoder::new(out);
    let failed = |source| ReportError::Io {
        path: path.to_owned(),
        source,
    };
    encoder
        .descriptor(report.name, ROOT_TRACK, None)
        .map_err(failed)?;
    let tracks = std::mem::take(&mut plan.tracks);
    for (rank, (name, spans)) in tracks.into_iter().enumerate() {
        let uuid = ROOT_TRACK + 1 + rank as u64;
        encoder
            .descriptor(name, uuid, Some(rank as u64))
            .map_err(failed)?;
        edges(name, spans, |edge| {
            match edge {
                Edge::Begin(span) => encoder.begin(uuid, &span, &mut plan, &mut slots)?,
                Edge::End(time) => encoder.end(uuid, time),
            }
            .map_err(failed)
        })?;
    }
    let events = plan.slices as u64;
    let bytes = encoder.finish().map_err(failed)?;
    Ok(Written { events, bytes })
}

#[cfg(test)]
mod tests;
