//! Row groups of chunks, and the footer that says where they are.

use std::fs::File;
use std::io::Write;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::sync::Arc;

use arrow_schema::Schema;
use parquet::arrow::ArrowSchemaConverter;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::schema::types::{ColumnDescPtr, SchemaDescPtr};

use super::chunk::Chunk;

/// What a Parquet file begins with.
const MAGIC: &[u8] = b"PAR1";
const VERSION: i32 = 1;
const CREATED_BY: &str = concat!("xorsig version ", env!("CARGO_PKG_VERSION"));

/// A Parquet file under construction.
pub struct PagesFile {
    file: File,
    schema: SchemaDescPtr,
    /// Bytes written.
    offset: usize,
    /// Chunks of the row group that is being written.
    chunks: Vec<ColumnChunkMetaData>,
    groups: Vec<RowGroupMetaData>,
}

impl PagesFile {
    /// Begins a file for a table of these columns.
    ///
    /// # Errors
    /// [`ParquetError`] if the file cannot be written.
    pub fn new(mut file: File, schema: &Schema) -> Result<Self, ParquetError> {
        let schema = Arc::new(ArrowSchemaConverter::new().convert(schema)?);
        file.write_all(MAGIC)?;
        Ok(Self {
            file,
            schema,
            offset: MAGIC.len(),
            chunks: Vec::new(),
            groups: Vec::new(),
        })
    }

    /// The column `index`.
    pub fn column(&self, index: usize) -> ColumnDescPtr {
        self.schema.column(index)
    }

    /// Writes the chunk of the row group's next column, which is empty afterwards.
    ///
    /// # Errors
    /// [`ParquetError`] if the file cannot be written.
    pub fn write(&mut self, chunk: &mut Chunk) -> Result<(), ParquetError> {
        self.chunks.push(chunk.metadata(self.offset as i64)?);
        for part in chunk.parts() {
            self.file.write_all(part)?;
            self.offset += part.len();
        }
        chunk.clear();
        Ok(())
    }

    /// Ends the row group of the chunks written.
    ///
    /// # Errors
    /// [`ParquetError`] if the library objects.
    pub fn end_group(&mut self, rows: usize) -> Result<(), ParquetError> {
        let chunks = std::mem::take(&mut self.chunks);
        let first = chunks.first().map_or(0, |chunk| chunk.byte_range().0);
        let raw_bytes = chunks.iter().map(ColumnChunkMetaData::uncompressed_size);
        let mut group = RowGroupMetaData::builder(self.schema.clone())
            .set_num_rows(rows as i64)
            .set_total_byte_size(raw_bytes.sum())
            .set_file_offset(first as i64)
            .set_column_metadata(chunks);
        // Optional, and too narrow for the largest tables.
        if let Ok(ordinal) = self.groups.len().try_into() {
            group = group.set_ordinal(ordinal);
        }
        self.groups.push(group.build()?);
        Ok(())
    }

    /// Lets the system begin to write to the disk, so that less is left for the end. It may
    /// wait for the disk.
    pub fn write_back(&self) {
        #[cfg(target_os = "linux")]
        // SAFETY: the descriptor is open as long as the file is borrowed; no memory is passed. A
        // failure shows when the file is made durable.
        unsafe {
            libc::sync_file_range(self.file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE);
        }
    }

    /// Writes the footer.
    ///
    /// # Errors
    /// [`ParquetError`] if the file cannot be written.
    pub fn finish(mut self) -> Result<File, ParquetError> {
        let rows = self.groups.iter().map(RowGroupMetaData::num_rows).sum();
        let created_by = Some(CREATED_BY.to_owned());
        let file = FileMetaData::new(VERSION, rows, created_by, None, self.schema, None);
        let metadata = ParquetMetaData::new(file, self.groups);
        // Into memory first: the library's writer cannot report the last bytes' failure.
        let mut footer = Vec::new();
        ParquetMetaDataWriter::new(&mut footer, &metadata).finish()?;
        self.file.write_all(&footer)?;
        Ok(self.file)
    }
}
