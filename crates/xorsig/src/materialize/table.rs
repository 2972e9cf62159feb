//! One Parquet file under construction.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, DataType};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::schema::Table;
use super::{MaterializeError, table_error};
use crate::capture::error::CaptureError;

/// Rows of a row group: enough to compress well, few enough to hold in memory.
const ROW_GROUP_ROWS: usize = 1 << 18;

/// Dictionaries and statistics where they help: values that hardly repeat (ticks, fingerprints)
/// are faster and smaller without, and only numbers are worth comparing with a bound.
fn properties(table: Table) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_dictionary_enabled(true)
        .set_statistics_enabled(EnabledStatistics::None);
    for field in table.schema().fields() {
        let column = ColumnPath::from(field.name().as_str());
        if matches!(field.data_type(), DataType::UInt64 | DataType::Int64) {
            builder = builder
                .set_column_statistics_enabled(column.clone(), EnabledStatistics::Chunk)
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
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
    writer: Option<ArrowWriter<File>>,
    unfinished: Unfinished,
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
            writer: Some(writer),
            unfinished,
        })
    }

    /// Appends the rows that `batch` builds.
    pub fn write(
        &mut self,
        batch: impl FnOnce() -> Result<RecordBatch, ArrowError>,
    ) -> Result<(), MaterializeError> {
        let path = &self.unfinished.path;
        let batch = batch().map_err(table_error(path))?;
        match &mut self.writer {
            Some(writer) => writer.write(&batch).map_err(table_error(path)),
            None => Ok(()),
        }
    }

    /// Completes the file.
    pub fn finish(mut self) -> Result<Finished, MaterializeError> {
        if let Some(writer) = self.writer.take() {
            let file = writer
                .into_inner()
                .map_err(table_error(&self.unfinished.path))?;
            file.sync_all()
                .map_err(CaptureError::io("sync", &self.unfinished.hidden))?;
        }
        Ok(Finished(self.unfinished))
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
