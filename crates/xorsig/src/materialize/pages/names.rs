//! Columns of names: indices of a dictionary that holds the names of the row group.

use arrow_array::StringArray;
use parquet::basic::Encoding;
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescPtr;

use super::chunk::{Chunk, Press};
use super::file::PagesFile;
use super::levels::Definitions;
use super::{PAGE_ROWS, hybrid};

/// A name that is not in the dictionary.
const ABSENT: u32 = u32::MAX;

/// A column of names by their ids.
pub struct NameColumn {
    chunk: Chunk,
    /// By id, the name's place in the dictionary.
    places: Vec<u32>,
    /// The ids in the dictionary.
    dictionary: Vec<u32>,
    /// Places of the next page's names.
    indices: Vec<u32>,
    /// Rows of the next page.
    definitions: Definitions,
    page: Vec<u8>,
}

impl NameColumn {
    /// The column without rows. Where it is nullable, the empty name (id 0) is null.
    pub fn new(column: ColumnDescPtr) -> Self {
        Self {
            definitions: Definitions::new(&column),
            chunk: Chunk::new(column, Encoding::RLE_DICTIONARY),
            places: Vec::new(),
            dictionary: Vec::new(),
            indices: Vec::new(),
            page: Vec::new(),
        }
    }

    /// Appends rows by the ids of their names.
    ///
    /// # Errors
    /// [`ParquetError`] if a page is larger than the format allows.
    pub fn append(&mut self, mut rows: &[u32], press: &mut Press) -> Result<(), ParquetError> {
        while !rows.is_empty() {
            let room = PAGE_ROWS - self.definitions.rows();
            let (now, later) = rows.split_at(room.min(rows.len()));
            if self.definitions.nullable() {
                self.definitions.extend(now);
                self.look_up(now.iter().copied().filter(|id| *id != 0));
            } else {
                self.definitions.add(now.len(), true);
                self.look_up(now.iter().copied());
            }
            if self.definitions.rows() == PAGE_ROWS {
                self.end_page(press)?;
            }
            rows = later;
        }
        Ok(())
    }

    fn look_up(&mut self, ids: impl Iterator<Item = u32>) {
        let (places, dictionary) = (&mut self.places, &mut self.dictionary);
        self.indices.extend(ids.map(|id| {
            let index = id as usize;
            if index >= places.len() {
                // The reader has checked that every id is defined, so there are as many names.
                places.resize(index + 1, ABSENT);
            }
            let place = &mut places[index];
            if *place == ABSENT {
                *place = dictionary.len() as u32;
                dictionary.push(id);
            }
            *place
        }));
    }

    fn end_page(&mut self, press: &mut Press) -> Result<(), ParquetError> {
        self.page.clear();
        let rows = self.definitions.end_page(&mut self.page);
        // As many bits as the places so far need; not every reader likes to have none.
        let last = self.dictionary.len().saturating_sub(1) as u32;
        let width = (u32::BITS - last.leading_zeros()).max(1);
        self.page.push(width as u8);
        hybrid::encode(&self.indices, width, &mut self.page);
        self.indices.clear();
        self.chunk.add_page(&self.page, rows, press)
    }

    /// Writes the row group's chunk; `names` has every name that it refers to.
    ///
    /// # Errors
    /// [`ParquetError`] if a page is larger than the format allows or the file cannot be written.
    pub fn finish(
        &mut self,
        names: &StringArray,
        file: &mut PagesFile,
        press: &mut Press,
    ) -> Result<(), ParquetError> {
        if self.definitions.rows() > 0 {
            self.end_page(press)?;
        }
        self.page.clear();
        for id in &self.dictionary {
            let text = names.value(*id as usize).as_bytes();
            self.page
                .extend_from_slice(&(text.len() as u32).to_le_bytes());
            self.page.extend_from_slice(text);
            self.places[*id as usize] = ABSENT;
        }
        let count = self.dictionary.len();
        self.dictionary.clear();
        self.chunk.set_dictionary(&self.page, count, press)?;
        file.write(&mut self.chunk)
    }
}
