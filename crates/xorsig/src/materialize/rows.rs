//! Rows of the tables that stream: tensors, values and marks.

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, PrimitiveBuilder};
use arrow_array::types::{ArrowPrimitiveType, Int64Type, UInt32Type};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt8Array, UInt64Array};
use arrow_schema::ArrowError;

use super::names::Names;
use super::schema::{Table, element};
use crate::capture::records::{LayoutRow, Records, Tensors};

/// The rows of a batch's tensors.
pub fn tensors(names: &Names, rows: &Tensors, regions: usize) -> Result<RecordBatch, ArrowError> {
    let layouts = || rows.layouts.iter().map(|id| names.layout(*id));
    let layout_text = |id: fn(&LayoutRow) -> u32| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(
            layouts().map(|layout| names.text(id(layout))),
        ))
    };
    let shapes = layouts().map(|layout| Some(layout.shape.iter().copied()));
    let strides = layouts().map(|layout| layout.strides.as_ref().map(|s| s.iter().copied()));
    let notes = rows.notes.iter().map(|id| names.optional(*id));
    RecordBatch::try_new(
        Table::Tensors.schema(),
        vec![
            u64s(rows.calls.iter().copied()),
            u64s(rows.ticks.iter().copied()),
            Arc::new(UInt8Array::from_iter_values(rows.roles.iter().copied())),
            texts(names, rows.slots.iter().copied()),
            layout_text(|layout| layout.dtype),
            lists::<Int64Type, _>(shapes),
            lists::<Int64Type, _>(strides),
            layout_text(|layout| layout.device),
            layout_text(|layout| layout.kind),
            u64s(layouts().map(|layout| layout.logical_nbytes)),
            signatures(rows, regions, 0),
            signatures(rows, regions, 1),
            Arc::new(StringArray::from_iter(notes)),
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
            texts(names, rows.iter().map(|r| r.slot)),
            Arc::new(StringArray::from_iter_values(text)),
        ],
    )
}

/// The rows of a batch's marks. The reader has checked that the batch has their texts.
pub fn marks(names: &Names, batch: &Records) -> Result<RecordBatch, ArrowError> {
    let rows = &batch.marks;
    let text = rows.iter().map(|r| &batch.texts[r.text as usize]);
    RecordBatch::try_new(
        Table::Marks.schema(),
        vec![
            u64s(rows.iter().map(|r| r.tick)),
            u64s(rows.iter().map(|r| r.time_ns)),
            Arc::new(UInt8Array::from_iter_values(rows.iter().map(|r| r.kind))),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.step))),
            texts(names, rows.iter().map(|r| r.name)),
            Arc::new(StringArray::from_iter_values(text)),
        ],
    )
}

/// One scheme's values of each tensor: `scheme` 0 is XOR, 1 is mix.
fn signatures(rows: &Tensors, regions: usize, scheme: usize) -> ArrayRef {
    let width = 4 * regions;
    let halves = rows
        .signatures
        .chunks_exact(2 * width)
        .map(|both| &both[scheme * width..][..width]);
    let words = |half: &'_ [u8]| -> Vec<u32> {
        half.as_chunks::<4>()
            .0
            .iter()
            .map(|word| u32::from_le_bytes(*word))
            .collect()
    };
    lists::<UInt32Type, _>(
        rows.present
            .iter()
            .zip(halves)
            .map(|(there, half)| there.then(|| words(half))),
    )
}

fn lists<T, I>(rows: impl Iterator<Item = Option<I>>) -> ArrayRef
where
    T: ArrowPrimitiveType,
    I: IntoIterator<Item = T::Native>,
{
    let mut lists =
        ListBuilder::new(PrimitiveBuilder::<T>::new()).with_field(element(T::DATA_TYPE));
    for row in rows {
        let present = row.is_some();
        row.into_iter()
            .flatten()
            .for_each(|item| lists.values().append_value(item));
        lists.append(present);
    }
    Arc::new(lists.finish())
}

fn texts(names: &Names, ids: impl Iterator<Item = u32>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(ids.map(|id| names.text(id))))
}

fn u64s(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}
