//! Debug annotations: the values that the viewer shows beside a slice.

use arrow_array::{Array, RecordBatch};

use super::ReportError;
use super::columns::{Cell, Column, cell};
use super::fields::annotation;
use super::intern::Interned;
use super::proto::{Head, Message, Short, WireType};
use crate::fingerprint::regions::Regions;
use crate::fingerprint::{MIX_SCHEME, XOR_SCHEME};

/// A column that is shown as an annotation, and what its packets have in common.
pub struct Annotation<'a> {
    column: Column<'a>,
    /// Its name and the tag of its values, once a packet has had one: a column's values are all
    /// of one kind.
    head: Option<Head>,
    /// Its last text and the number of it: neighbours are often equal.
    last: Option<(&'a str, Short)>,
}

impl<'a> Annotation<'a> {
    /// The annotation of a column.
    pub fn new(column: Column<'a>) -> Self {
        Self {
            column,
            head: None,
            last: None,
        }
    }

    /// Adds the value in `row` under `field` of `parent`; a missing value adds none.
    #[inline]
    pub fn put(
        &mut self,
        parent: &mut Message,
        field: u32,
        interned: &mut Interned,
        row: usize,
    ) -> Result<(), ReportError> {
        let number = match self.column.get(row)? {
            Cell::Text(text) => match self.last {
                Some((last, number)) if same_text(text, last) => number,
                _ => {
                    let number = Short::varint(interned.string_value(text));
                    self.last = Some((text, number));
                    number
                }
            },
            Cell::UInt(value) => Short::varint(value),
            Cell::Int(value) => Short::varint(value.cast_unsigned()),
            Cell::Double(value) => Short::fixed64(value.to_bits()),
            Cell::Bool(value) => Short::varint(u64::from(value)),
            Cell::Null => return Ok(()),
            list @ Cell::List(..) => {
                return named(parent, field, interned, self.column.name(), list);
            }
        };
        let head = match self.head {
            Some(head) => head,
            None => self.first_head(interned, row)?,
        };
        parent.headed(field, head, number);
        Ok(())
    }

    /// The head, for the value in `row`.
    #[cold]
    fn first_head(&mut self, interned: &mut Interned, row: usize) -> Result<Head, ReportError> {
        let head = head(interned, self.column.name(), &self.column.get(row)?);
        self.head = Some(head);
        Ok(head)
    }
}

/// Whether two texts are equal. Most differ, if they do, near an end: looking there first saves
/// the call that compares all bytes.
#[inline(always)]
fn same_text(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    left.len() == right.len()
        && left.first_chunk::<4>() == right.first_chunk::<4>()
        && left.last_chunk::<4>() == right.last_chunk::<4>()
        && (left.len() <= 8 && left.len() >= 4 || left == right)
}

/// The encoded form of a value that is one number; a text is one by its number.
#[inline(always)]
fn number(value: &Cell<'_>, interned: &mut Interned) -> Option<Short> {
    Some(match *value {
        Cell::Bool(value) => Short::varint(u64::from(value)),
        Cell::UInt(value) => Short::varint(value),
        Cell::Int(value) => Short::varint(value.cast_unsigned()),
        Cell::Double(value) => Short::fixed64(value.to_bits()),
        Cell::Text(text) => Short::varint(interned.string_value(text)),
        Cell::Null | Cell::List(..) => return None,
    })
}

/// Field and wire type of the values of which `value` is one; those of a list stand for none.
fn tag(value: &Cell<'_>) -> (u32, WireType) {
    match value {
        Cell::Bool(_) => (annotation::BOOL_VALUE, WireType::Varint),
        Cell::UInt(_) => (annotation::UINT_VALUE, WireType::Varint),
        Cell::Int(_) => (annotation::INT_VALUE, WireType::Varint),
        Cell::Double(_) => (annotation::DOUBLE_VALUE, WireType::Fixed64),
        Cell::Text(_) => (annotation::STRING_VALUE_IID, WireType::Varint),
        Cell::Null | Cell::List(..) => (annotation::ARRAY_VALUES, WireType::LengthDelimited),
    }
}

/// The begin of annotations of this name with values of the kind of `value`.
fn head(interned: &mut Interned, name: &str, value: &Cell<'_>) -> Head {
    let (field, wire_type) = tag(value);
    Short::head(
        annotation::NAME_IID,
        interned.annotation_name(name),
        field,
        wire_type,
    )
}

/// Adds the annotation `name` under `field` of `parent`; a missing value adds none.
fn named(
    parent: &mut Message,
    field: u32,
    interned: &mut Interned,
    name: &str,
    value: Cell<'_>,
) -> Result<(), ReportError> {
    if let Some(number) = number(&value, interned) {
        let head = head(interned, name, &value);
        parent.headed(field, head, number);
        return Ok(());
    }
    let Cell::List(items, begin, end) = value else {
        return Ok(());
    };
    let id = interned.annotation_name(name);
    parent.nested(field, |message| {
        message.uint(annotation::NAME_IID, id);
        list(message, interned, items, begin, end)
    })
}

/// Writes the items of a list into an annotation that is being built.
fn list(
    message: &mut Message,
    interned: &mut Interned,
    items: &dyn Array,
    begin: usize,
    end: usize,
) -> Result<(), ReportError> {
    for row in begin..end {
        let item = cell(items, row)?;
        message.nested(annotation::ARRAY_VALUES, |entry| match item {
            Cell::List(items, begin, end) => list(entry, interned, items, begin, end),
            item => {
                if let Some(number) = number(&item, interned) {
                    let (field, wire_type) = tag(&item);
                    entry.value(field, wire_type, number);
                }
                Ok(())
            }
        })?;
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
