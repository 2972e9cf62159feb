//! Rows of layouts, values and marks.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Int64Type};
use arrow_array::{
    ArrayRef, Int64Array, ListArray, PrimitiveArray, RecordBatch, StringArray, UInt8Array,
    UInt32Array, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::ArrowError;

use super::names::Names;
use super::schema::{Table, element};
use crate::capture::records::{LayoutRow, Records};

/// The rows of a batch's new layouts; the first has the id `first`.
pub fn layouts(
    names: &Names,
    first: u32,
    layouts: &[LayoutRow],
) -> Result<RecordBatch, ArrowError> {
    let rows = || layouts.iter();
    RecordBatch::try_new(
        Table::Layouts.schema(),
        vec![
            Arc::new(UInt32Array::from_iter_values((first..).take(layouts.len()))),
            names.column(rows().map(|r| r.dtype)),
            lists::<Int64Type>(rows().map(|r| Some(r.shape.as_slice())))?,
            lists::<Int64Type>(rows().map(|r| r.strides.as_deref()))?,
            names.column(rows().map(|r| r.device)),
            names.column(rows().map(|r| r.kind)),
            u64s(rows().map(|r| r.logical_nbytes)),
        ],
    )
}

/// The rows of a batch's values. The reader has checked that the batch has their texts.
pub fn values(names: &Names, batch: &Records) -> Result<RecordBatch, ArrowError> {
    let rows = &batch.values;
    let text = rows.iter().map(|r| &batch.texts[r.text as usize]);
    RecordBatch::try_new(
        Table::Values.schema(),
        vec![
            u64s(rows.iter().map(|r| r.call)),
            u64s(rows.iter().map(|r| r.tick)),
            Arc::new(UInt8Array::from_iter_values(rows.iter().map(|r| r.role))),
            names.column(rows.iter().map(|r| r.slot)),
            Arc::new(StringArray::from_iter_values(text)),
        ],
    )
}

/// The rows of a batch's marks. The reader has checked that the batch has their texts.
pub fn marks(names: &Names, batch: &Records) -> Result<RecordBatch, ArrowError> {
    let rows = &batch.marks;
    let name = rows.iter().map(|r| names.text(r.name));
    let text = rows.iter().map(|r| &batch.texts[r.text as usize]);
    RecordBatch::try_new(
        Table::Marks.schema(),
        vec![
            u64s(rows.iter().map(|r| r.tick)),
            u64s(rows.iter().map(|r| r.time_ns)),
            Arc::new(UInt8Array::from_iter_values(rows.iter().map(|r| r.kind))),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.step))),
            Arc::new(StringArray::from_iter_values(name)),
            Arc::new(StringArray::from_iter_values(text)),
        ],
    )
}

fn lists<'a, T: ArrowPrimitiveType>(
    rows: impl Iterator<Item = Option<&'a [T::Native]>> + Clone,
) -> Result<ArrayRef, ArrowError> {
    let lengths = rows.clone().map(|row| row.map_or(0, <[_]>::len));
    let mut items = Vec::new();
    for row in rows.clone().flatten() {
        items.extend_from_slice(row);
    }
    let nulls = rows.map(|row| row.is_some()).collect();
    list_array::<T>(OffsetBuffer::from_lengths(lengths), items, Some(nulls))
}

fn list_array<T: ArrowPrimitiveType>(
    offsets: OffsetBuffer<i32>,
    items: Vec<T::Native>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let items = Arc::new(PrimitiveArray::<T>::new(items.into(), None));
    let lists = ListArray::try_new(element(T::DATA_TYPE), offsets, items, nulls)?;
    Ok(Arc::new(lists))
}

fn u64s(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}
