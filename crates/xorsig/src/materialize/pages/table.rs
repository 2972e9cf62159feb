//! A table whose columns become pages: what is the same for each of them.

use std::fs::File;
use std::ops::Range;

use arrow_array::StringArray;
use parquet::errors::ParquetError;

use super::chunk::Press;
use super::file::PagesFile;
use crate::materialize::ROW_GROUP_ROWS;
use crate::materialize::names::Names;
use crate::materialize::schema::Table;

/// The columns of a table.
pub trait Columns: Sized {
    /// Rows that are appended together.
    type Rows<'a>: Copy;

    /// The columns without rows.
    fn new(file: &PagesFile) -> Self;

    /// Number of rows.
    fn count(rows: Self::Rows<'_>) -> usize;

    /// Appends the rows of a range.
    ///
    /// # Errors
    /// [`ParquetError`] if a page is larger than the format allows.
    fn append(
        &mut self,
        rows: Self::Rows<'_>,
        range: Range<usize>,
        press: &mut Press,
    ) -> Result<(), ParquetError>;

    /// Writes a chunk for each column, in the order of the schema.
    ///
    /// # Errors
    /// [`ParquetError`] if a page is larger than the format allows or the file cannot be written.
    fn finish(
        &mut self,
        names: &StringArray,
        file: &mut PagesFile,
        press: &mut Press,
    ) -> Result<(), ParquetError>;
}

/// A table under construction.
pub struct PagesTable<C> {
    file: PagesFile,
    press: Press,
    /// Every name that rows so far refer to.
    names: StringArray,
    /// Rows of the row group under construction.
    rows: usize,
    columns: C,
}

impl<C: Columns> PagesTable<C> {
    /// Begins the file of a table.
    ///
    /// # Errors
    /// [`ParquetError`] if the file cannot be written.
    pub fn new(file: File, table: Table) -> Result<Self, ParquetError> {
        let file = PagesFile::new(file, &table.schema())?;
        Ok(Self {
            columns: C::new(&file),
            press: Press::default(),
            names: Names::default().array().clone(),
            rows: 0,
            file,
        })
    }

    /// Appends rows. `names` has every name that they refer to.
    ///
    /// # Errors
    /// As [`Columns::finish`].
    pub fn write(&mut self, rows: C::Rows<'_>, names: &StringArray) -> Result<(), ParquetError> {
        self.names = names.clone();
        let end = C::count(rows);
        let mut done = 0;
        while done < end {
            let now = (end - done).min(ROW_GROUP_ROWS - self.rows);
            self.columns
                .append(rows, done..done + now, &mut self.press)?;
            done += now;
            self.rows += now;
            if self.rows == ROW_GROUP_ROWS {
                self.end_group()?;
            }
        }
        Ok(())
    }

    fn end_group(&mut self) -> Result<(), ParquetError> {
        self.columns
            .finish(&self.names, &mut self.file, &mut self.press)?;
        self.file.end_group(self.rows)?;
        self.rows = 0;
        Ok(())
    }

    /// As [`PagesFile::write_back`].
    pub fn write_back(&self) {
        self.file.write_back();
    }

    /// Completes the file.
    ///
    /// # Errors
    /// As [`Columns::finish`].
    pub fn finish(mut self) -> Result<File, ParquetError> {
        if self.rows > 0 {
            self.end_group()?;
        }
        self.file.finish()
    }
}
