//! Debug annotations: the values that the viewer shows beside a slice.

use super::ReportError;
use super::columns::{Cell, Row, cell};
use super::fields::annotation;
use super::intern::Interned;
use super::proto::Message;
use crate::fingerprint::regions::Regions;
use crate::fingerprint::{MIX_SCHEME, XOR_SCHEME};

/// Adds the annotation `name` under `field` of `parent`; a missing value adds none.
pub fn named(
    parent: &mut Message,
    field: u32,
    interned: &mut Interned,
    name: &str,
    value: &Cell<'_>,
) -> Result<(), ReportError> {
    if matches!(value, Cell::Null) {
        return Ok(());
    }
    let id = interned.annotation_name(name);
    parent.nested(field, |message| {
        message.uint(annotation::NAME_IID, id);
        put(message, interned, value)
    })
}

/// Writes a value into an annotation that is being built.
fn put(
    message: &mut Message,
    interned: &mut Interned,
    value: &Cell<'_>,
) -> Result<(), ReportError> {
    match value {
        Cell::Null => {}
        Cell::Bool(value) => message.uint(annotation::BOOL_VALUE, u64::from(*value)),
        Cell::UInt(value) => message.uint(annotation::UINT_VALUE, *value),
        Cell::Int(value) => message.int(annotation::INT_VALUE, *value),
        Cell::Double(value) => message.double(annotation::DOUBLE_VALUE, *value),
        Cell::Text(value) => {
            let id = interned.string_value(value);
            message.uint(annotation::STRING_VALUE_IID, id);
        }
        Cell::List(items) => {
            for row in 0..items.len() {
                let item = cell(items, row)?;
                message.nested(annotation::ARRAY_VALUES, |m| put(m, interned, &item))?;
            }
        }
    }
    Ok(())
}

/// Adds the annotation `io`: an array with one entry per slot.
pub fn slots(
    event: &mut Message,
    field: u32,
    interned: &mut Interned,
    slots: &[Row<'_>],
) -> Result<(), ReportError> {
    let id = interned.annotation_name("io");
    event.nested(field, |io| {
        io.uint(annotation::NAME_IID, id);
        for slot in slots {
            io.nested(annotation::ARRAY_VALUES, |entry| {
                put_slot(entry, interned, *slot)
            })?;
        }
        Ok(())
    })
}

/// One entry of `io`: what the slot is, and its values with their layouts under `stats`.
fn put_slot(
    entry: &mut Message,
    interned: &mut Interned,
    slot: Row<'_>,
) -> Result<(), ReportError> {
    for column in [
        "slot", "role", "dtype", "shape", "device", "relation", "note",
    ] {
        named(
            entry,
            annotation::DICT_ENTRIES,
            interned,
            column,
            &slot.get(column)?,
        )?;
    }
    let schemes = [("xor_sig", XOR_SCHEME), ("mix_sig", MIX_SCHEME)];
    let signatures = schemes.map(|(name, scheme)| Ok((name, scheme, slot.get(name)?)));
    let [xor, mix]: [Result<_, ReportError>; 2] = signatures;
    let present = [xor?, mix?]
        .into_iter()
        .filter(|(_, _, value)| !matches!(value, Cell::Null));
    let present: Vec<_> = present.collect();
    if present.is_empty() {
        return Ok(());
    }
    let nbytes = slot.uint("logical_nbytes")?;
    let regions = slot.uint("regions")?;
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
        for (name, scheme, value) in &present {
            named(message, annotation::DICT_ENTRIES, interned, name, value)?;
            let layout = interned.annotation_name(&format!("{name}_layout"));
            message.nested(annotation::DICT_ENTRIES, |message| {
                message.uint(annotation::NAME_IID, layout);
                put_layout(message, interned, scheme, nbytes, &split)
            })?;
        }
        Ok(())
    })
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
    for (name, value) in &scalars {
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
