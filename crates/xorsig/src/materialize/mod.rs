//! Verified batches of one rank to Parquet tables that any engine reads.
//!
//! `calls.parquet`, `layouts.parquet`, `tensors.parquet`, `values.parquet`, `marks.parquet` and
//! `spans.parquet`;
//! `docs/formats/tables.md` describes their columns. Rows go out batch by batch; what is held is
//! one batch, the row groups under construction, the names, the calls that are open, and one row
//! per source expression.

mod calls;
mod names;
mod rows;
mod schema;
mod spans;
mod table;

use std::path::{Path, PathBuf};

use arrow_schema::ArrowError;
use parquet::errors::ParquetError;

use crate::capture::error::{CaptureError, Corrupt};
use crate::capture::reader::{CaptureReader, Summary};
use crate::capture::records::Records;
use calls::Calls;
use names::Names;
use schema::Table;
use spans::Spans;
use table::TableWriter;

/// What was materialised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the batches hold that went into the tables.
    pub summary: Summary,
    /// Why the tables end early; `None` if they are complete.
    pub incomplete: Option<Corrupt>,
}

/// Why tables could not be written.
#[derive(Debug)]
pub enum MaterializeError {
    /// The capture is damaged or cannot be read.
    Capture(CaptureError),
    /// A table could not be encoded or written.
    Table {
        /// The table's file.
        path: PathBuf,
        /// What happened.
        reason: String,
    },
}

impl std::fmt::Display for MaterializeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Capture(error) => error.fmt(f),
            Self::Table { path, reason } => write!(f, "cannot write {}: {reason}", path.display()),
        }
    }
}

impl std::error::Error for MaterializeError {}

impl From<CaptureError> for MaterializeError {
    fn from(error: CaptureError) -> Self {
        Self::Capture(error)
    }
}

impl From<Corrupt> for MaterializeError {
    fn from(corrupt: Corrupt) -> Self {
        Self::Capture(corrupt.into())
    }
}

/// Writes the tables of the rank that `reader` reads into the directory `output`.
///
/// With `partial`, damage ends the tables before the first damaged batch instead of failing.
/// Tables appear under their names only when all are complete; existing ones are replaced.
///
/// # Errors
/// [`MaterializeError`].
pub fn materialize(
    mut reader: CaptureReader,
    output: &Path,
    partial: bool,
) -> Result<Outcome, MaterializeError> {
    std::fs::create_dir_all(output).map_err(CaptureError::io("create directory", output))?;
    let mut tables = Tables::new(output, reader.is_threaded())?;
    let incomplete = loop {
        match reader.next_batch() {
            Ok(Some(records)) => tables.add(records, reader.summary().regions as usize)?,
            Ok(None) => break None,
            Err(CaptureError::Corrupt(corrupt)) if partial => break Some(corrupt),
            Err(error) => return Err(error.into()),
        }
    };
    tables.finish()?;
    Ok(Outcome {
        summary: reader.summary(),
        incomplete,
    })
}

/// The tables under construction.
struct Tables {
    names: Names,
    calls: Calls,
    spans: Spans,
    writers: [TableWriter; Table::ALL.len()],
}

impl Tables {
    /// With `threaded`, the largest table is encoded in a thread of its own.
    fn new(output: &Path, threaded: bool) -> Result<Self, MaterializeError> {
        let [calls, layouts, tensors, values, marks, spans] =
            Table::ALL.map(|table| TableWriter::create(output, table));
        let tensors = if threaded {
            tensors?.aside()?
        } else {
            tensors?
        };
        Ok(Self {
            names: Names::default(),
            calls: Calls::default(),
            spans: Spans::default(),
            writers: [calls?, layouts?, tensors, values?, marks?, spans?],
        })
    }

    fn add(&mut self, mut records: Records, regions: usize) -> Result<(), MaterializeError> {
        self.names.define(std::mem::take(&mut records.names));
        self.spans.add(&records.spans);
        let calls = self.calls.complete(&records.calls, &records.ends);
        let names = &self.names;
        let [
            call_table,
            layout_table,
            tensor_table,
            value_table,
            mark_table,
            _,
        ] = &mut self.writers;
        call_table.write(|| calls::batch(names, &calls))?;
        layout_table.write(|| rows::layouts(names, records.first_layout, &records.layouts))?;
        let tensors = std::mem::take(&mut records.tensors);
        tensor_table.write(|| rows::tensors(names, tensors, regions))?;
        value_table.write(|| rows::values(names, &records))?;
        mark_table.write(|| rows::marks(names, &records))
    }

    fn finish(mut self) -> Result<(), MaterializeError> {
        let names = &self.names;
        let [call_table, .., span_table] = &mut self.writers;
        let never_ended = self.calls.never_ended();
        call_table.write(|| calls::batch(names, &never_ended))?;
        span_table.write(|| self.spans.batch(names))?;
        let finished = self.writers.map(TableWriter::finish);
        for table in finished {
            table?.publish()?;
        }
        Ok(())
    }
}

/// For `map_err`: says which table failed.
fn table_error<E: TableCause>(path: &Path) -> impl FnOnce(E) -> MaterializeError {
    let path = path.to_owned();
    move |error| MaterializeError::Table {
        path,
        reason: error.to_string(),
    }
}

/// The errors that end a table.
trait TableCause: std::fmt::Display {}
impl TableCause for ArrowError {}
impl TableCause for ParquetError {}
