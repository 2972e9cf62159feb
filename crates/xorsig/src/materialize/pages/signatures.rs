//! The two columns of fingerprints: lists that all have one length, in rows that hold both.

use parquet::basic::Encoding;
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescPtr;

use super::PAGE_ROWS;
use super::chunk::{Chunk, Press};
use super::file::PagesFile;
use super::levels;

/// Bytes of the values of a page at most.
const PAGE_BYTES: usize = 1 << 20;

/// Columns of lists of u32, which are null in the same rows.
pub struct Signatures {
    chunks: [Chunk; 2],
    /// Which rows of the next page have a signature.
    present: Vec<bool>,
    /// Values of the next page, little-endian, behind room for the levels that precede them.
    values: [Vec<u8>; 2],
    room: usize,
    levels: Vec<u8>,
    /// Values of a list.
    regions: usize,
}

impl Signatures {
    /// The columns without rows.
    pub fn new(columns: [ColumnDescPtr; 2]) -> Self {
        Self {
            chunks: columns.map(|column| Chunk::new(column, Encoding::PLAIN)),
            present: Vec::new(),
            values: [Vec::new(), Vec::new()],
            room: 0,
            levels: Vec::new(),
            regions: 0,
        }
    }

    /// Appends rows: `regions` values of the first column, then as many of the second one, in
    /// little-endian order, whatever they are where nothing is present. A table's rows have the
    /// same number of regions, 1 or more.
    pub fn append(
        &mut self,
        mut present: &[bool],
        mut rows: &[u8],
        regions: usize,
        press: &mut Press,
    ) -> Result<(), ParquetError> {
        let width = 4 * regions;
        let page_rows = PAGE_ROWS.min(PAGE_BYTES / width);
        if self.regions != regions {
            self.regions = regions;
            self.room = levels::most_bytes(page_rows * regions);
            self.values = [(); 2].map(|()| vec![0; self.room]);
        }
        while !present.is_empty() {
            let count = present.len().min(page_rows - self.present.len());
            let (now, later) = rows.split_at(2 * width * count);
            self.split(&present[..count], now, width);
            if self.present.len() == page_rows {
                self.end_page(press)?;
            }
            (present, rows) = (&present[count..], later);
        }
        Ok(())
    }

    /// Adds rows of one page, of `width` bytes for each column.
    fn split(&mut self, present: &[bool], rows: &[u8], width: usize) {
        self.present.extend_from_slice(present);
        let [xor, mix] = &mut self.values;
        // Four regions are what nearly all captures have, and known lengths copy faster.
        if width == 16 && present.iter().all(|present| *present) {
            let both = rows.as_chunks::<16>().0.as_chunks::<2>().0;
            xor.extend(both.iter().flat_map(|[left, _]| left));
            mix.extend(both.iter().flat_map(|[_, right]| right));
            return;
        }
        let both = rows.chunks_exact(2 * width).zip(present);
        for (both, _) in both.filter(|(_, present)| **present) {
            let (left, right) = both.split_at(width);
            xor.extend_from_slice(left);
            mix.extend_from_slice(right);
        }
    }

    fn end_page(&mut self, press: &mut Press) -> Result<(), ParquetError> {
        self.levels.clear();
        let count = levels::lists(&self.present, self.regions, &mut self.levels);
        let begin = self.room - self.levels.len();
        for (chunk, values) in self.chunks.iter_mut().zip(&mut self.values) {
            values[begin..self.room].copy_from_slice(&self.levels);
            chunk.add_page(&values[begin..], count, press)?;
            values.truncate(self.room);
        }
        self.present.clear();
        Ok(())
    }

    /// Writes the row group's chunks.
    pub fn finish(&mut self, file: &mut PagesFile, press: &mut Press) -> Result<(), ParquetError> {
        if !self.present.is_empty() {
            self.end_page(press)?;
        }
        self.chunks
            .iter_mut()
            .try_for_each(|chunk| file.write(chunk))
    }
}
