//! Columns of numbers, as differences.

use parquet::basic::Encoding;
use parquet::errors::ParquetError;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;

use super::PAGE_ROWS;
use super::chunk::{Chunk, Press};
use super::delta::{self, Number};
use super::file::PagesFile;
use super::levels::Definitions;

/// A column of numbers.
pub struct Numbers<T> {
    chunk: Chunk,
    /// Numbers of the next page.
    values: Vec<T>,
    /// Rows of the next page and of the row group that are null.
    definitions: Definitions,
    nulls: u64,
    page: Vec<u8>,
    /// Least and largest number of the row group.
    bounds: Option<(T, T)>,
}

impl<T: Number> Numbers<T> {
    /// The column without rows.
    pub fn new(column: ColumnDescPtr) -> Self {
        Self {
            definitions: Definitions::new(&column),
            chunk: Chunk::new(column, Encoding::DELTA_BINARY_PACKED),
            values: Vec::new(),
            nulls: 0,
            page: Vec::new(),
            bounds: None,
        }
    }

    /// Appends numbers.
    ///
    /// # Errors
    /// [`ParquetError`] if a page is larger than the format allows.
    pub fn append(&mut self, mut rows: &[T], press: &mut Press) -> Result<(), ParquetError> {
        while !rows.is_empty() {
            let room = PAGE_ROWS - self.definitions.rows();
            let (now, later) = rows.split_at(room.min(rows.len()));
            self.definitions.add(now.len(), true);
            if now.len() == PAGE_ROWS {
                // A whole page is encoded from where it is.
                self.end_page(now, press)?;
            } else {
                self.values.extend_from_slice(now);
                self.end_full_page(press)?;
            }
            rows = later;
        }
        Ok(())
    }

    /// Appends nulls to a nullable column.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn append_nulls(
        &mut self,
        mut count: usize,
        press: &mut Press,
    ) -> Result<(), ParquetError> {
        self.nulls += count as u64;
        while count > 0 {
            let now = count.min(PAGE_ROWS - self.definitions.rows());
            self.definitions.add(now, false);
            self.end_full_page(press)?;
            count -= now;
        }
        Ok(())
    }

    fn end_full_page(&mut self, press: &mut Press) -> Result<(), ParquetError> {
        if self.definitions.rows() < PAGE_ROWS {
            return Ok(());
        }
        self.end_gathered_page(press)
    }

    fn end_gathered_page(&mut self, press: &mut Press) -> Result<(), ParquetError> {
        let mut values = std::mem::take(&mut self.values);
        let ended = self.end_page(&values, press);
        values.clear();
        self.values = values;
        ended
    }

    fn end_page(&mut self, values: &[T], press: &mut Press) -> Result<(), ParquetError> {
        if T::BOUNDED {
            self.bounds = match (self.bounds, bounds(values)) {
                (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
                (before, page) => before.or(page),
            };
        }
        self.page.clear();
        let rows = self.definitions.end_page(&mut self.page);
        delta::encode(values, &mut self.page);
        self.chunk.add_page(&self.page, rows, press)
    }

    /// Writes the row group's chunk.
    ///
    /// # Errors
    /// [`ParquetError`] if a page is larger than the format allows or the file cannot be written.
    pub fn finish(&mut self, file: &mut PagesFile, press: &mut Press) -> Result<(), ParquetError> {
        if self.definitions.rows() > 0 {
            self.end_gathered_page(press)?;
        }
        if T::BOUNDED {
            let bounds = self.bounds.take();
            let [least, largest] = [bounds.map(|b| b.0), bounds.map(|b| b.1)].map(stored);
            let statistics = Statistics::int64(least, largest, None, Some(self.nulls), false);
            self.chunk.set_statistics(statistics);
        }
        self.nulls = 0;
        file.write(&mut self.chunk)
    }
}

fn stored<T: Number>(bound: Option<T>) -> Option<i64> {
    bound.map(Number::stored)
}

/// The least and the largest value.
fn bounds<T: Number>(values: &[T]) -> Option<(T, T)> {
    let first = *values.first()?;
    // Four at a time, since a comparison that waits for the one before it is slow.
    let (fours, rest) = values.as_chunks::<4>();
    let (mut least, mut largest) = ([first; 4], [first; 4]);
    for four in fours {
        for lane in 0..4 {
            least[lane] = least[lane].min(four[lane]);
            largest[lane] = largest[lane].max(four[lane]);
        }
    }
    let least = least.iter().chain(rest).min();
    let largest = largest.iter().chain(rest).max();
    Some((*least?, *largest?))
}
