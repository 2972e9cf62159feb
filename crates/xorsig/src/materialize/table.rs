//! A table that the `parquet` crate encodes from Arrow arrays.

use std::fs::File;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, DataType};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::output::{Finished, Unfinished};
use super::schema::Table;
use super::{MaterializeError, ROW_GROUP_ROWS, table_error};

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
    builder.build()
}

/// Writes a table in the thread that appends its rows.
pub struct TableWriter {
    writer: ArrowWriter<File>,
    unfinished: Unfinished,
}

impl TableWriter {
    /// Creates the file of `table` in the directory `output`.
    pub fn create(output: &Path, table: Table) -> Result<Self, MaterializeError> {
        let (file, unfinished) = Unfinished::create(output, table)?;
        // Without the Arrow schema in its metadata, every engine sees the same plain types.
        let options = ArrowWriterOptions::new()
            .with_properties(properties(table))
            .with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(file, table.schema(), options)
            .map_err(table_error(unfinished.path()))?;
        Ok(Self { writer, unfinished })
    }

    /// Appends the rows that `batch` builds.
    pub fn write(
        &mut self,
        batch: impl FnOnce() -> Result<RecordBatch, ArrowError>,
    ) -> Result<(), MaterializeError> {
        let path = self.unfinished.path();
        let batch = batch().map_err(table_error(path))?;
        self.writer.write(&batch).map_err(table_error(path))
    }

    /// Completes the file.
    pub fn finish(self) -> Result<Finished, MaterializeError> {
        let Self { writer, unfinished } = self;
        let file = writer
            .into_inner()
            .map_err(table_error(unfinished.path()))?;
        unfinished.finish(&file)
    }
}
