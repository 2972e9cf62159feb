//! Debug annotations: the values that the viewer shows beside a slice.

use arrow_array::RecordBatch;

use super::ReportError;
use super::columns::{Cell, Column, cell};
use super::fields::annotation;
use super::intern::Interned;
use super::proto::Message;
use crate::fingerprint::regions::Regions;
use crate::fingerprint::{MIX_SCHEME, XOR_SCHEME};

/// A column that is shown as an annotation, and what its packets have in common.
pub struct Annotation<'a> {
    column: Column<'a>,
    /// Number of its name, once a packet has had it.
    name: Option<u64>,
    /// Its last text and the number of it: neighbours are often equal.
    last: Option<(&'a str, u64)>,
}

impl<'a> Annotation<'a> {
    /// The annotation of a column.
    pub fn new(column: Column<'a>) -> Self {
        Self {
            column,
            name: None,
            last: None,
        }
    }

    /// Adds the value in `row` under `field` of `parent`; a missing value adds none.
    pub fn put(
        &mut self,
        parent: &mut Message,
        field: u32,
        interned: &mut Interned,
        row: usize,
    ) -> Result<(), ReportError> {
        let value = self.column.get(row)?;
        if matches!(value, Cell::Null) {
            return Ok(());
        }
        let name = *self
            .name
            .get_or_insert_with(|| interned.annotation_name(self.column.name()));
        match value {
            Cell::Text(text) => {
                let id = match self.last {
                    Some((last, id)) if last == text => id,
                    _ => interned.string_value(text),
                };
                self.last = Some((text, id));
                let value = (annotation::STRING_VALUE_IID, id);
                parent.nested_uints(field, [(annotation::NAME_IID, name), value]);
                Ok(())
            }
            other => numbered(parent, field, interned, name, other),
        }
    }
}

/// Adds the annotation `name` under `field` of `parent`; a missing value adds none.
fn named(
    parent: &mut Message,
    field: u32,
    interned: &mut Interned,
    name: &str,
    value: Cell<'_>,
) -> Result<(), ReportError> {
    if matches!(value, Cell::Null) {
        return Ok(());
    }
    let id = interned.annotation_name(name);
    numbered(parent, field, interned, id, value)
}

/// Adds an annotation whose name has the number `name`.
fn numbered(
    parent: &mut Message,
    field: u32,
    interned: &mut Interned,
    name: u64,
    value: Cell<'_>,
) -> Result<(), ReportError> {
    let entry = match value {
        Cell::Bool(value) => (annotation::BOOL_VALUE, u64::from(value)),
        Cell::UInt(value) => (annotation::UINT_VALUE, value),
        Cell::Int(value) => (annotation::INT_VALUE, value.cast_unsigned()),
        Cell::Text(text) => (annotation::STRING_VALUE_IID, interned.string_value(text)),
        other => {
            return parent.nested(field, |message| {
                message.uint(annotation::NAME_IID, name);
                put(message, interned, other)
            });
        }
    };
    parent.nested_uints(field, [(annotation::NAME_IID, name), entry]);
    Ok(())
}

/// Writes a value into an annotation that is being built.
fn put(message: &mut Message, interned: &mut Interned, value: Cell<'_>) -> Result<(), ReportError> {
    match value {
        Cell::Null => {}
        Cell::Bool(value) => message.uint(annotation::BOOL_VALUE, u64::from(value)),
        Cell::UInt(value) => message.uint(annotation::UINT_VALUE, value),
        Cell::Int(value) => message.int(annotation::INT_VALUE, value),
        Cell::Double(value) => message.double(annotation::DOUBLE_VALUE, value),
        Cell::Text(value) => {
            let id = interned.string_value(value);
            message.uint(annotation::STRING_VALUE_IID, id);
        }
        Cell::List(items, begin, end) => {
            for row in begin..end {
                let item = cell(items, row)?;
                message.nested(annotation::ARRAY_VALUES, |m| put(m, interned, item))?;
            }
        }
    }
    Ok(())
}

/// The columns of a batch of slots.
pub struct SlotColumns<'a> {
    /// What is shown of a slot, besides its values.
    facts: [Annotation<'a>; 7],
    /// Values and scheme of each fingerprint.
    signatures: [(Column<'a>, &'static str); 2],
    regions: Column<'a>,
    nbytes: Column<'a>,
}

impl<'a> SlotColumns<'a> {
    /// Finds the columns of a batch.
    ///
    /// # Errors
    /// [`ReportError::Invalid`] if one is missing.
    pub fn find(batch: &'a RecordBatch) -> Result<Self, ReportError> {
        let find = |name| Column::find("slots", batch, name);
        let fact = |name| find(name).map(Annotation::new);
        Ok(Self {
            facts: [
                fact("slot")?,
                fact("role")?,
                fact("dtype")?,
                fact("shape")?,
                fact("device")?,
                fact("relation")?,
                fact("note")?,
            ],
            signatures: [
                (find("xor_sig")?, XOR_SCHEME),
                (find("mix_sig")?, MIX_SCHEME),
            ],
            regions: find("regions")?,
            nbytes: find("logical_nbytes")?,
        })
    }
}

/// Adds the annotation `io`: an array with one entry per slot, given by batch and row.
pub fn slots(
    event: &mut Message,
    field: u32,
    interned: &mut Interned,
    batches: &mut [SlotColumns<'_>],
    slots: &[(usize, usize)],
) -> Result<(), ReportError> {
    let id = interned.annotation_name("io");
    event.nested(field, |io| {
        io.uint(annotation::NAME_IID, id);
        for (batch, row) in slots {
            io.nested(annotation::ARRAY_VALUES, |entry| {
                put_slot(entry, interned, &mut batches[*batch], *row)
            })?;
        }
        Ok(())
    })
}

/// One entry of `io`: what the slot is, and its values with their layouts under `stats`.
fn put_slot(
    entry: &mut Message,
    interned: &mut Interned,
    columns: &mut SlotColumns<'_>,
    row: usize,
) -> Result<(), ReportError> {
    for fact in &mut columns.facts {
        fact.put(entry, annotation::DICT_ENTRIES, interned, row)?;
    }
    let mut values = [Cell::Null; 2];
    for (value, (column, _)) in values.iter_mut().zip(&columns.signatures) {
        *value = column.get(row)?;
    }
    if values.iter().all(|value| matches!(value, Cell::Null)) {
        return Ok(());
    }
    let nbytes = columns.nbytes.uint(row)?;
    let regions = columns.regions.uint(row)?;
    let split = usize::try_from(regions)
        .ok()
        .and_then(|count| Regions::new(nbytes, count));
    let split = split.ok_or_else(|| {
        ReportError::Invalid(format!(
            "slots.regions must be 1 to 64, a row has {regions}"
        ))
    })?;
    let stats = interned.annotation_name("stats");
    entry.nested(annotation::DICT_ENTRIES, |message| {
        message.uint(annotation::NAME_IID, stats);
        for (value, (column, scheme)) in values.into_iter().zip(&columns.signatures) {
            if matches!(value, Cell::Null) {
                continue;
            }
            let field = annotation::DICT_ENTRIES;
            named(message, field, interned, column.name(), value)?;
            let layout = interned.annotation_name(layout_name(scheme));
            message.nested(field, |message| {
                message.uint(annotation::NAME_IID, layout);
                put_layout(message, interned, scheme, nbytes, &split)
            })?;
        }
        Ok(())
    })
}

fn layout_name(scheme: &str) -> &'static str {
    if scheme == XOR_SCHEME {
        "xor_sig_layout"
    } else {
        "mix_sig_layout"
    }
}

/// The layout of a signature: scheme, regions, logical size, byte ranges.
fn put_layout(
    message: &mut Message,
    interned: &mut Interned,
    scheme: &str,
    nbytes: u64,
    split: &Regions,
) -> Result<(), ReportError> {
    let scalars = [
        ("scheme", Cell::Text(scheme)),
        ("regions", Cell::UInt(split.count() as u64)),
        ("logical_nbytes", Cell::UInt(nbytes)),
    ];
    for (name, value) in scalars {
        named(message, annotation::DICT_ENTRIES, interned, name, value)?;
    }
    let ranges = interned.annotation_name("byte_ranges");
    message.nested(annotation::DICT_ENTRIES, |message| {
        message.uint(annotation::NAME_IID, ranges);
        for region in 0..split.count() {
            let range = split.byte_range(region);
            message.nested(annotation::ARRAY_VALUES, |pair| {
                for end in [range.start, range.end] {
                    pair.nested(annotation::ARRAY_VALUES, |m| {
                        m.uint(annotation::UINT_VALUE, end)
                    });
                }
            });
        }
    });
    Ok(())
}
