//! One Parquet file under construction.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, DataType};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::schema::Table;
use super::{MaterializeError, table_error};
use crate::capture::error::CaptureError;

/// Rows of a row group: enough to compress well, few enough to hold in memory.
const ROW_GROUP_ROWS: usize = 1 << 18;

/// Dictionaries for texts only: numbers are as small and written faster as differences, without
/// looking up each. Statistics only where a bound is worth comparing with.
fn properties(table: Table) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_dictionary_enabled(true)
        .set_statistics_enabled(EnabledStatistics::None);
    for field in table.schema().fields() {
        let column = ColumnPath::from(field.name().as_str());
        if field.data_type().is_integer() {
            builder = builder
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column.clone(), Encoding::DELTA_BINARY_PACKED);
        }
        if matches!(field.data_type(), DataType::UInt64 | DataType::Int64) {
            builder = builder.set_column_statistics_enabled(column, EnabledStatistics::Chunk);
        }
    }
    for signature in ["xor_sig", "mix_sig"] {
        let parts = [signature, "list", "element"].map(String::from).to_vec();
        builder = builder.set_column_dictionary_enabled(ColumnPath::new(parts), false);
    }
    builder.build()
}

/// Writes a table under a hidden name, which is removed if the table is not finished.
pub struct TableWriter {
    sink: Sink,
    unfinished: Unfinished,
}

/// Where rows are encoded.
enum Sink {
    /// In the thread that appends them.
    Here(Box<ArrowWriter<File>>),
    /// In a thread of their own, which gives the writer back when the sender is gone.
    Aside(
        SyncSender<RecordBatch>,
        JoinHandle<Result<Box<ArrowWriter<File>>, ParquetError>>,
    ),
    /// Nowhere any more: encoding has failed.
    Failed,
}

/// A finished table that still has its hidden name.
pub struct Finished(Unfinished);

struct Unfinished {
    hidden: PathBuf,
    path: PathBuf,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Gone when the table was published.
        let _ = fs::remove_file(&self.hidden);
    }
}

impl TableWriter {
    /// Creates the file of `table` in the directory `output`.
    pub fn create(output: &Path, table: Table) -> Result<Self, MaterializeError> {
        let name = table.file_name();
        let path = output.join(name);
        let hidden = output.join(format!(".{name}.{}.tmp", std::process::id()));
        let file = File::create(&hidden).map_err(CaptureError::io("create", &hidden))?;
        let unfinished = Unfinished { hidden, path };
        // Without the Arrow schema in its metadata, every engine sees the same plain types.
        let options = ArrowWriterOptions::new()
            .with_properties(properties(table))
            .with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(file, table.schema(), options)
            .map_err(table_error(&unfinished.path))?;
        Ok(Self {
            sink: Sink::Here(Box::new(writer)),
            unfinished,
        })
    }

    /// Lets a thread encode the rows. At most one batch waits for it.
    pub fn aside(mut self) -> Result<Self, MaterializeError> {
        if let Sink::Here(mut writer) = std::mem::replace(&mut self.sink, Sink::Failed) {
            let (sender, receiver) = sync_channel::<RecordBatch>(1);
            let encode = move || {
                for batch in receiver {
                    writer.write(&batch)?;
                }
                Ok(writer)
            };
            let thread = std::thread::Builder::new().name("xorsig-table".into());
            let thread = thread.spawn(encode).map_err(CaptureError::io(
                "start a thread for",
                &self.unfinished.path,
            ))?;
            self.sink = Sink::Aside(sender, thread);
        }
        Ok(self)
    }

    /// Appends the rows that `batch` builds.
    pub fn write(
        &mut self,
        batch: impl FnOnce() -> Result<RecordBatch, ArrowError>,
    ) -> Result<(), MaterializeError> {
        let path = &self.unfinished.path;
        let batch = batch().map_err(table_error(path))?;
        match &mut self.sink {
            Sink::Here(writer) => writer.write(&batch).map_err(table_error(path)),
            Sink::Aside(sender, _) => match sender.send(batch) {
                Ok(()) => Ok(()),
                // The thread has ended early; its error is what it returns.
                Err(_) => self.take_writer().map(drop),
            },
            Sink::Failed => Ok(()),
        }
    }

    /// Completes the file.
    pub fn finish(mut self) -> Result<Finished, MaterializeError> {
        if let Some(writer) = self.take_writer()? {
            let file = writer
                .into_inner()
                .map_err(table_error(&self.unfinished.path))?;
            file.sync_all()
                .map_err(CaptureError::io("sync", &self.unfinished.hidden))?;
        }
        Ok(Finished(self.unfinished))
    }

    /// The writer, once every row has been encoded.
    fn take_writer(&mut self) -> Result<Option<Box<ArrowWriter<File>>>, MaterializeError> {
        let path = &self.unfinished.path;
        match std::mem::replace(&mut self.sink, Sink::Failed) {
            Sink::Here(writer) => Ok(Some(writer)),
            Sink::Aside(sender, thread) => {
                drop(sender);
                let panicked = |_| Err(ParquetError::General("the encoder failed".into()));
                let writer = thread.join().unwrap_or_else(panicked);
                writer.map(Some).map_err(table_error(path))
            }
            Sink::Failed => Ok(None),
        }
    }
}

impl Finished {
    /// Gives the table its name, in place of an older one.
    pub fn publish(self) -> Result<(), MaterializeError> {
        let Unfinished { hidden, path } = &self.0;
        fs::rename(hidden, path).map_err(CaptureError::io("publish", path))?;
        Ok(())
    }
}
