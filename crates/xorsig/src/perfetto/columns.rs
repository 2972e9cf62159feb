//! Cells of Arrow tables, whichever of Arrow's several encodings a column has.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;

use super::ReportError;

/// One value of a table.
#[derive(Clone, Debug)]
pub enum Cell<'a> {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// An unsigned integer.
    UInt(u64),
    /// A signed integer.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// A text.
    Text(&'a str),
    /// A list.
    List(ArrayRef),
}

/// The value in `row` of `array`.
///
/// # Errors
/// [`ReportError::Invalid`] for a type that has no annotation.
pub fn cell(array: &dyn Array, row: usize) -> Result<Cell<'_>, ReportError> {
    if array.is_null(row) {
        return Ok(Cell::Null);
    }
    Ok(match array.data_type() {
        DataType::Null => Cell::Null,
        DataType::Boolean => Cell::Bool(array.as_boolean().value(row)),
        DataType::UInt8 => Cell::UInt(array.as_primitive::<UInt8Type>().value(row).into()),
        DataType::UInt16 => Cell::UInt(array.as_primitive::<UInt16Type>().value(row).into()),
        DataType::UInt32 => Cell::UInt(array.as_primitive::<UInt32Type>().value(row).into()),
        DataType::UInt64 => Cell::UInt(array.as_primitive::<UInt64Type>().value(row)),
        DataType::Int8 => Cell::Int(array.as_primitive::<Int8Type>().value(row).into()),
        DataType::Int16 => Cell::Int(array.as_primitive::<Int16Type>().value(row).into()),
        DataType::Int32 => Cell::Int(array.as_primitive::<Int32Type>().value(row).into()),
        DataType::Int64 => Cell::Int(array.as_primitive::<Int64Type>().value(row)),
        DataType::Float32 => Cell::Double(array.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => Cell::Double(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => Cell::Text(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => Cell::Text(array.as_string::<i64>().value(row)),
        DataType::Utf8View => Cell::Text(array.as_string_view().value(row)),
        DataType::List(_) => Cell::List(array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => Cell::List(array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => Cell::List(array.as_fixed_size_list().value(row)),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let key = match cell(dictionary.keys(), row)? {
                Cell::UInt(key) => usize::try_from(key).ok(),
                Cell::Int(key) => usize::try_from(key).ok(),
                _ => None,
            };
            match key.filter(|key| *key < dictionary.values().len()) {
                Some(key) => cell(dictionary.values(), key)?,
                None => Cell::Null,
            }
        }
        other => {
            let message = format!("columns of type {other} have no annotation; cast it to text");
            return Err(ReportError::Invalid(message));
        }
    })
}

/// A table of known columns.
#[derive(Clone, Copy, Debug)]
pub struct TableRef<'a> {
    /// The table's name in messages.
    pub name: &'static str,
    /// The table's rows.
    pub batches: &'a [RecordBatch],
}

impl<'a> TableRef<'a> {
    /// Every row as (batch, row in the batch).
    pub fn rows(self) -> impl Iterator<Item = Row<'a>> {
        self.batches.iter().flat_map(move |batch| {
            (0..batch.num_rows()).map(move |row| Row {
                table: self.name,
                batch,
                row,
            })
        })
    }
}

/// One row of a table.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    table: &'static str,
    /// The batch that holds the row.
    pub batch: &'a RecordBatch,
    /// The row's index in its batch.
    pub row: usize,
}

impl<'a> Row<'a> {
    /// The value of a column that must exist.
    ///
    /// # Errors
    /// [`ReportError::Invalid`] if it does not.
    pub fn get(self, column: &str) -> Result<Cell<'a>, ReportError> {
        match self.batch.column_by_name(column) {
            Some(array) => cell(array, self.row),
            None => Err(ReportError::Invalid(format!(
                "{} needs a column {column}",
                self.table
            ))),
        }
    }

    /// An integer that is not negative.
    ///
    /// # Errors
    /// [`ReportError::Invalid`] if the column is missing or holds something else.
    pub fn uint(self, column: &str) -> Result<u64, ReportError> {
        match self.get(column)? {
            Cell::UInt(value) => Ok(value),
            Cell::Int(value) if value >= 0 => Ok(value.cast_unsigned()),
            other => Err(self.unfit(column, "an integer that is not negative", &other)),
        }
    }

    /// A text.
    ///
    /// # Errors
    /// [`ReportError::Invalid`] if the column is missing or holds something else.
    pub fn text(self, column: &str) -> Result<&'a str, ReportError> {
        match self.get(column)? {
            Cell::Text(value) => Ok(value),
            other => Err(self.unfit(column, "a text", &other)),
        }
    }

    fn unfit(self, column: &str, wanted: &str, found: &Cell<'_>) -> ReportError {
        let Self { table, row, .. } = self;
        ReportError::Invalid(format!(
            "{table}.{column} must hold {wanted}, row {row} has {found:?}"
        ))
    }
}
