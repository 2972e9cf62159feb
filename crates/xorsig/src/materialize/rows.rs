//! Rows of the tables that stream: tensors, values and marks.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Int64Type, UInt32Type};
use arrow_array::{
    ArrayRef, Int64Array, ListArray, PrimitiveArray, RecordBatch, StringArray, UInt8Array,
    UInt32Array, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::ArrowError;

use super::names::Names;
use super::schema::{Table, element};
use crate::capture::records::{LayoutRow, Records, Tensors};

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

/// The rows of a batch's tensors, whose columns become those of the table without a copy.
pub fn tensors(names: &Names, rows: Tensors, regions: usize) -> Result<RecordBatch, ArrowError> {
    let [xor, mix] = [0, 1].map(|scheme| signatures(&rows, regions, scheme));
    let notes = rows.notes.iter().map(|id| Some(*id));
    RecordBatch::try_new(
        Table::Tensors.schema(),
        vec![
            Arc::new(UInt64Array::from(rows.calls)),
            Arc::new(UInt64Array::from(rows.ticks)),
            Arc::new(UInt8Array::from(rows.roles)),
            names.dictionary(rows.slots.into()),
            Arc::new(UInt32Array::from(rows.layouts)),
            xor?,
            mix?,
            names.optional_column(notes),
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

/// One scheme's values of each tensor: `scheme` 0 is XOR, 1 is mix.
fn signatures(rows: &Tensors, regions: usize, scheme: usize) -> Result<ArrayRef, ArrowError> {
    let width = 4 * regions;
    let present = rows.present.iter().filter(|present| **present).count();
    let mut words: Vec<u32> = Vec::with_capacity(regions * present);
    // A batch without signatures has no regions either when nothing was read before it.
    let both = rows.signatures.chunks_exact((2 * width).max(1));
    for (both, _) in both.zip(&rows.present).filter(|(_, present)| **present) {
        let half = both[scheme * width..][..width].as_chunks::<4>().0;
        words.extend(half.iter().map(|word| u32::from_le_bytes(*word)));
    }
    if present == rows.len() {
        let offsets = OffsetBuffer::from_repeated_length(regions, present);
        return list_array::<UInt32Type>(offsets, words, None);
    }
    let lengths = rows
        .present
        .iter()
        .map(|there| usize::from(*there) * regions);
    let nulls = NullBuffer::from(rows.present.as_slice());
    list_array::<UInt32Type>(OffsetBuffer::from_lengths(lengths), words, Some(nulls))
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
