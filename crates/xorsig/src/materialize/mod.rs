//! Verified batches of one rank to Parquet tables that any engine reads.
//!
//! `calls.parquet`, `layouts.parquet`, `tensors.parquet`, `values.parquet`, `marks.parquet` and
//! `spans.parquet`; `docs/formats/tables.md` describes their columns. Rows go out batch by batch;
//! what is held is one batch (with threads, one more that is decoded and one that is encoded), the
//! row groups under construction, the names, the calls that are open, and one row per source
//! expression.

mod calls;
mod names;
mod output;
mod pages;
mod rows;
mod schema;
mod spans;
mod table;
mod tensors;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use arrow_schema::ArrowError;
use parquet::errors::ParquetError;

use crate::capture::error::{CaptureError, Corrupt};
use crate::capture::load::Loaded;
use crate::capture::reader::{CaptureReader, Summary};
use crate::capture::records::Records;
use calls::{CallWriter, Calls};
use names::Names;
use output::Finished;
use schema::Table;
use spans::Spans;
use table::TableWriter;
use tensors::TensorWriter;

/// Rows of a row group: enough to compress well, few enough that their pages, which wait in
/// memory, are still in the processor's cache when they are written.
const ROW_GROUP_ROWS: usize = 1 << 17;

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
    let mut batch = Loaded::default();
    let incomplete = loop {
        match reader.advance(&mut batch) {
            Ok(true) => tables.add(&mut batch.records, reader.summary().regions as usize)?,
            Ok(false) => break None,
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
    open_calls: Calls,
    all_spans: Spans,
    calls: CallWriter,
    layouts: TableWriter,
    tensors: TensorWriter,
    values: TableWriter,
    marks: TableWriter,
    spans: TableWriter,
}

impl Tables {
    /// With `threaded`, the largest table is encoded in a thread of its own.
    fn new(output: &Path, threaded: bool) -> Result<Self, MaterializeError> {
        let create = |table| TableWriter::create(output, table);
        Ok(Self {
            names: Names::default(),
            open_calls: Calls::default(),
            all_spans: Spans::default(),
            calls: CallWriter::create(output)?,
            layouts: create(Table::Layouts)?,
            tensors: TensorWriter::create(output, threaded)?,
            values: create(Table::Values)?,
            marks: create(Table::Marks)?,
            spans: create(Table::Spans)?,
        })
    }

    /// Adds a batch, whose memory may be used for another one afterwards.
    fn add(&mut self, batch: &mut Records, regions: usize) -> Result<(), MaterializeError> {
        self.names.define(std::mem::take(&mut batch.names))?;
        self.all_spans.add(&batch.spans);
        let ended = self.open_calls.complete(&batch.calls, &batch.ends);
        let names = &self.names;
        self.calls.write(ended, names)?;
        let first = batch.first_layout;
        self.layouts
            .write(|| rows::layouts(names, first, &batch.layouts))?;
        self.tensors.write(&mut batch.tensors, regions, names)?;
        self.values.write(|| rows::values(names, batch))?;
        self.marks.write(|| rows::marks(names, batch))
    }

    fn finish(mut self) -> Result<(), MaterializeError> {
        let names = &self.names;
        let open = self.open_calls.never_ended();
        self.calls.write_open(&open, names)?;
        self.spans.write(|| self.all_spans.batch(names))?;
        let tables = [
            self.calls.finish()?,
            self.layouts.finish()?,
            self.tensors.finish()?,
            self.values.finish()?,
            self.marks.finish()?,
            self.spans.finish()?,
        ];
        tables.into_iter().try_for_each(Finished::publish)
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
