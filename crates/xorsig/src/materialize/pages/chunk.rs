//! The pages of a column in one row group.

use lz4_flex::block::{compress_into, get_maximum_output_size};
use parquet::basic::{Compression, Encoding, PageType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ColumnChunkMetaDataBuilder, PageEncodingStats};
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;

use super::PAGE_ROWS;
use super::header::{Header, Kind};
use crate::materialize::ROW_GROUP_ROWS;

/// Full pages of a row group.
const GROUP_PAGES: usize = ROW_GROUP_ROWS.div_ceil(PAGE_ROWS);

/// Memory for the compressed form of one page, which the columns of a table share.
#[derive(Default)]
pub struct Press(Vec<u8>);

impl Press {
    /// The page as one LZ4 block. What does not shorten becomes literals, which cost a copy.
    fn compress(&mut self, page: &[u8]) -> Result<&[u8], ParquetError> {
        let most = get_maximum_output_size(page.len());
        if self.0.len() < most {
            self.0.resize(most, 0);
        }
        let stored = compress_into(page, &mut self.0)
            .map_err(|error| ParquetError::General(error.to_string()))?;
        Ok(&self.0[..stored])
    }
}

/// Compressed pages that wait for the rest of their row group.
pub struct Chunk {
    column: ColumnDescPtr,
    encoding: Encoding,
    dictionary: Vec<u8>,
    data: Vec<u8>,
    data_pages: i32,
    values: i64,
    /// Bytes of headers and of pages before compression.
    raw_bytes: usize,
    statistics: Option<Statistics>,
}

impl Chunk {
    /// No pages yet. Values of all data pages are encoded alike.
    pub fn new(column: ColumnDescPtr, encoding: Encoding) -> Self {
        Self {
            column,
            encoding,
            dictionary: Vec::new(),
            data: Vec::new(),
            data_pages: 0,
            values: 0,
            raw_bytes: 0,
            statistics: None,
        }
    }

    /// Adds a page of `values` values, nulls included.
    ///
    /// # Errors
    /// [`ParquetError`] if it is larger than the format allows.
    pub fn add_page(
        &mut self,
        page: &[u8],
        values: usize,
        press: &mut Press,
    ) -> Result<(), ParquetError> {
        self.data_pages += 1;
        self.values += values as i64;
        let what = (Kind::Data, values, self.encoding);
        self.raw_bytes += append(what, page, press, &mut self.data)?;
        if self.data_pages == 1 {
            // The pages to come will be about as large: growing step by step would move them.
            self.data.reserve(self.data.len() * GROUP_PAGES);
        }
        Ok(())
    }

    /// Sets the page of the values that indices stand for.
    ///
    /// # Errors
    /// As [`Self::add_page`].
    pub fn set_dictionary(
        &mut self,
        page: &[u8],
        values: usize,
        press: &mut Press,
    ) -> Result<(), ParquetError> {
        let what = (Kind::Dictionary, values, Encoding::PLAIN);
        self.raw_bytes += append(what, page, press, &mut self.dictionary)?;
        Ok(())
    }

    /// Sets the least and the largest value.
    pub fn set_statistics(&mut self, statistics: Statistics) {
        self.statistics = Some(statistics);
    }

    /// The bytes of the chunk in the order of the file.
    pub fn parts(&self) -> [&[u8]; 2] {
        [&self.dictionary, &self.data]
    }

    /// What the footer says about the chunk, which begins at `offset` of the file.
    ///
    /// # Errors
    /// [`ParquetError`] if the library objects.
    pub fn metadata(&self, offset: i64) -> Result<ColumnChunkMetaData, ParquetError> {
        let dictionary_bytes = self.dictionary.len() as i64;
        let mut pages = vec![(PageType::DATA_PAGE, self.encoding, self.data_pages)];
        let mut encodings = vec![self.encoding, Encoding::RLE];
        if dictionary_bytes > 0 {
            pages.push((PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1));
            encodings.push(Encoding::PLAIN);
        }
        let count = |(page_type, encoding, count)| PageEncodingStats {
            page_type,
            encoding,
            count,
        };
        let builder = ColumnChunkMetaData::builder(self.column.clone())
            .set_compression(Compression::LZ4_RAW)
            .set_encodings(encodings)
            .set_page_encoding_stats(pages.into_iter().map(count).collect())
            .set_num_values(self.values)
            .set_total_compressed_size(dictionary_bytes + self.data.len() as i64)
            .set_total_uncompressed_size(self.raw_bytes as i64)
            .set_dictionary_page_offset((dictionary_bytes > 0).then_some(offset))
            .set_data_page_offset(offset + dictionary_bytes);
        let statistics = self.statistics.clone();
        statistics
            .into_iter()
            .fold(builder, ColumnChunkMetaDataBuilder::set_statistics)
            .build()
    }

    /// Forgets the pages, keeps the memory.
    pub fn clear(&mut self) {
        self.dictionary.clear();
        self.data.clear();
        self.data_pages = 0;
        self.values = 0;
        self.raw_bytes = 0;
        self.statistics = None;
    }
}

/// Appends a page behind its header; returns the bytes of both before compression.
fn append(
    (kind, values, encoding): (Kind, usize, Encoding),
    page: &[u8],
    press: &mut Press,
    out: &mut Vec<u8>,
) -> Result<usize, ParquetError> {
    let begin = out.len();
    let stored = press.compress(page)?;
    let header = Header {
        kind,
        values,
        encoding,
        raw_bytes: page.len(),
        stored_bytes: stored.len(),
    };
    header.write(out)?;
    let header_bytes = out.len() - begin;
    out.extend_from_slice(stored);
    Ok(header_bytes + page.len())
}
