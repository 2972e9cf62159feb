//! Cells of Arrow tables, whichever of Arrow's several encodings a column has.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, LargeStringArray, RecordBatch, StringArray, StringViewArray};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;

use super::ReportError;

/// One value of a table.
#[derive(Clone, Copy, Debug)]
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
    /// The items of a list: those from the first number to before the second.
    List(&'a dyn Array, usize, usize),
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
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let offsets = lists.value_offsets();
            let [begin, end] = [offsets[row], offsets[row + 1]].map(|offset| offset as usize);
            Cell::List(lists.values(), begin, end)
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            let offsets = lists.value_offsets();
            let [begin, end] = [offsets[row], offsets[row + 1]].map(|offset| offset as usize);
            Cell::List(lists.values(), begin, end)
        }
        DataType::FixedSizeList(..) => {
            let lists = array.as_fixed_size_list();
            let begin = lists.value_offset_at(row);
            Cell::List(lists.values(), begin, begin + lists.value_length() as usize)
        }
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

/// A column whose type was looked up once: that costs more than reading a value.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    table: &'static str,
    name: &'a str,
    array: &'a dyn Array,
    values: Values<'a>,
    nulls: Option<&'a NullBuffer>,
}

/// The values of a column, for the types that are frequent.
#[derive(Clone, Copy, Debug)]
enum Values<'a> {
    UInt64(&'a [u64]),
    UInt32(&'a [u32]),
    Int64(&'a [i64]),
    Double(&'a [f64]),
    Text(&'a StringArray),
    LargeText(&'a LargeStringArray),
    TextView(&'a StringViewArray),
    /// Any other type, read by [`cell`].
    Other,
}

impl<'a> Column<'a> {
    /// Column `name` of a batch of `table`.
    ///
    /// # Errors
    /// [`ReportError::Invalid`] if there is none.
    pub fn find(
        table: &'static str,
        batch: &'a RecordBatch,
        name: &'a str,
    ) -> Result<Self, ReportError> {
        match batch.column_by_name(name) {
            Some(array) => Ok(Self::new(table, name, array)),
            None => Err(ReportError::Invalid(format!(
                "{table} needs a column {name}"
            ))),
        }
    }

    /// A column.
    pub fn new(table: &'static str, name: &'a str, array: &'a dyn Array) -> Self {
        let values = match array.data_type() {
            DataType::UInt64 => Values::UInt64(array.as_primitive::<UInt64Type>().values()),
            DataType::UInt32 => Values::UInt32(array.as_primitive::<UInt32Type>().values()),
            DataType::Int64 => Values::Int64(array.as_primitive::<Int64Type>().values()),
            DataType::Float64 => Values::Double(array.as_primitive::<Float64Type>().values()),
            DataType::Utf8 => Values::Text(array.as_string::<i32>()),
            DataType::LargeUtf8 => Values::LargeText(array.as_string::<i64>()),
            DataType::Utf8View => Values::TextView(array.as_string_view()),
            _ => Values::Other,
        };
        Self {
            table,
            name,
            array,
            values,
            nulls: array.nulls(),
        }
    }

    /// The column's name.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The value in a row.
    ///
    /// # Errors
    /// [`ReportError::Invalid`] for a type that has no annotation.
    // Inlined, so that a cell stays in registers instead of being copied through memory.
    #[inline(always)]
    pub fn get(&self, row: usize) -> Result<Cell<'a>, ReportError> {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(Cell::Null);
        }
        Ok(match self.values {
            Values::UInt64(values) => Cell::UInt(values[row]),
            Values::UInt32(values) => Cell::UInt(values[row].into()),
            Values::Int64(values) => Cell::Int(values[row]),
            Values::Double(values) => Cell::Double(values[row]),
            Values::Text(texts) => Cell::Text(texts.value(row)),
            Values::LargeText(texts) => Cell::Text(texts.value(row)),
            Values::TextView(texts) => Cell::Text(texts.value(row)),
            Values::Other => cell(self.array, row)?,
        })
    }

    /// An integer that is not negative.
    ///
    /// # Errors
    /// [`ReportError::Invalid`] if the row holds something else.
    #[inline]
    pub fn uint(&self, row: usize) -> Result<u64, ReportError> {
        match self.get(row)? {
            Cell::UInt(value) => Ok(value),
            Cell::Int(value) if value >= 0 => Ok(value.cast_unsigned()),
            other => Err(self.unfit(row, "an integer that is not negative", &other)),
        }
    }

    /// A text.
    ///
    /// # Errors
    /// [`ReportError::Invalid`] if the row holds something else.
    #[inline]
    pub fn text(&self, row: usize) -> Result<&'a str, ReportError> {
        match self.get(row)? {
            Cell::Text(value) => Ok(value),
            other => Err(self.unfit(row, "a text", &other)),
        }
    }

    #[cold]
    fn unfit(&self, row: usize, wanted: &str, found: &Cell<'_>) -> ReportError {
        let Self { table, name, .. } = self;
        ReportError::Invalid(format!(
            "{table}.{name} must hold {wanted}, row {row} has {found:?}"
        ))
    }
}
