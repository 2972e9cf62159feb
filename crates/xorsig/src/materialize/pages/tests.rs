//! Encodings against decoders written from the format's description. Whole tables are read by the
//! `parquet` crate in the tests of the tables.

use std::sync::Arc;

use parquet::basic::Repetition;
use parquet::schema::types::{ColumnDescriptor, ColumnPath, Type};
use proptest::prelude::*;

use super::delta::{self, Number};
use super::hybrid::{self, LANES, pack};
use super::levels::{self, Definitions};

/// The numbers of `width` bits in the bytes, from the lowest bit of the first one.
fn unpack(bytes: &[u8], width: u32) -> Vec<u64> {
    let bit = |at: usize| u64::from(bytes[at / 8] >> (at % 8) & 1);
    let bits = width as usize;
    let number = |first: usize| (0..bits).map(|i| bit(first + i) << i).sum();
    (0..bytes.len() * 8 / bits)
        .map(|i| number(i * bits))
        .collect()
}

fn take_varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

fn take_zigzag(bytes: &mut &[u8]) -> i64 {
    let value = take_varint(bytes);
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

/// At least the first `count` values of runs.
fn decode_hybrid(mut bytes: &[u8], width: u32, count: usize) -> Vec<u64> {
    let mut values = Vec::new();
    while values.len() < count {
        let header = take_varint(&mut bytes);
        let length = (header >> 1) as usize;
        if header & 1 == 1 {
            values.extend(unpack(take(&mut bytes, length * width as usize), width));
        } else {
            let mut value = [0; 8];
            let size = width.div_ceil(8) as usize;
            value[..size].copy_from_slice(take(&mut bytes, size));
            values.resize(values.len() + length, u64::from_le_bytes(value));
        }
    }
    assert_eq!(bytes, [0; 0]);
    values
}

/// The stored numbers, each the one before it plus a difference, as `T` wraps.
fn decode_delta<T: Number>(mut bytes: &[u8]) -> Vec<i64> {
    let block = take_varint(&mut bytes) as usize;
    let parts = take_varint(&mut bytes) as usize;
    let count = take_varint(&mut bytes) as usize;
    let mut value = take_zigzag(&mut bytes);
    let mut values = vec![value];
    while values.len() < count {
        let least = take_zigzag(&mut bytes);
        for width in take(&mut bytes, parts) {
            let lanes = block / parts;
            if values.len() >= count {
                assert_eq!(*width, 0, "a part without values has no bits");
            }
            let excesses = match *width {
                0 => vec![0; lanes],
                width => unpack(take(&mut bytes, lanes * width as usize / 8), width.into()),
            };
            for excess in excesses {
                value = T::wrap(value.wrapping_add(least).wrapping_add(excess as i64));
                values.push(value);
            }
        }
    }
    values.truncate(count);
    assert_eq!(bytes, [0; 0]);
    values
}

fn check_delta<T: Number>(values: &[T]) {
    let mut bytes = Vec::new();
    delta::encode(values, &mut bytes);
    let stored: Vec<i64> = values.iter().map(|value| value.stored()).collect();
    assert_eq!(decode_delta::<T>(&bytes), stored);
}

proptest! {
    #[test]
    fn numbers_are_packed_at_every_width(values: [u64; LANES]) {
        for width in 1..=64 {
            let values = values.map(|value| value >> (64 - width));
            let mut bytes = Vec::new();
            pack(&values, width, &mut bytes);
            prop_assert_eq!(unpack(&bytes, width), values);
        }
    }

    /// Lengths around a block of 128 differences and its parts of 32.
    #[test]
    fn differences_add_up_to_the_values(
        values in prop::collection::vec(any::<u64>(), 1..300),
        shift in 0u32..64,
    ) {
        let values: Vec<u64> = values.into_iter().map(|value| value >> shift).collect();
        check_delta(&values);
        check_delta(&values.iter().map(|value| *value as i64).collect::<Vec<_>>());
        check_delta(&values.iter().map(|value| *value as u32).collect::<Vec<_>>());
        check_delta(&values.iter().map(|value| *value as u8).collect::<Vec<_>>());
    }

    #[test]
    fn levels_of_lists_say_where_each_begins(
        present in prop::collection::vec(any::<bool>(), 1..50),
        length in 1usize..=64,
        all: bool,
    ) {
        let present: Vec<bool> = present.into_iter().map(|one| one || all).collect();
        let mut page = Vec::new();
        let count = levels::lists(&present, length, &mut page);
        prop_assert!(page.len() <= levels::most_bytes(count));
        let [repetitions, definitions] = sections(&page);
        let one = |present: &bool| if *present { (length, 2) } else { (1, 0) };
        let expected: Vec<(u64, u64)> = present
            .iter()
            .map(one)
            .flat_map(|(levels, value)| (0..levels).map(move |i| (u64::from(i > 0), value)))
            .collect();
        let repetitions = decode_hybrid(repetitions, 1, count);
        let definitions = decode_hybrid(definitions, 2, count);
        let found: Vec<(u64, u64)> = repetitions.into_iter().zip(definitions).take(count).collect();
        prop_assert_eq!(found, expected);
    }

    /// Rows come in pieces that are all null, all defined, or both.
    #[test]
    fn definitions_say_which_rows_are_null(
        pieces in prop::collection::vec((prop::collection::vec(0u32..2, 1..20), 0..3), 1..6)
    ) {
        let mut definitions = Definitions::new(&nullable());
        let mut expected = Vec::new();
        for (piece, how) in pieces {
            match how {
                2 => definitions.extend(&piece),
                _ => definitions.add(piece.len(), how == 1),
            }
            let level = |row: &u32| if how == 2 { u64::from(*row) } else { how as u64 };
            expected.extend(piece.iter().map(level));
        }
        // The next page begins anew.
        for _ in 0..2 {
            let mut page = Vec::new();
            prop_assert_eq!(definitions.end_page(&mut page), expected.len());
            let length = u32::from_le_bytes(page[..4].try_into().unwrap()) as usize;
            prop_assert_eq!(length, page.len() - 4);
            let mut found = decode_hybrid(&page[4..], 1, expected.len());
            found.truncate(expected.len());
            prop_assert_eq!(&found, &expected);
            expected = vec![1; 3];
            definitions.add(3, true);
        }
    }
}

#[test]
fn equal_values_are_one_run_and_others_are_packed() {
    let encoded = |values: &[u32], width| {
        let mut bytes = Vec::new();
        hybrid::encode(values, width, &mut bytes);
        bytes
    };
    assert_eq!(encoded(&[], 3), [0; 0]);
    assert_eq!(encoded(&[5; 100], 3), [200, 1, 5]);
    assert_eq!(encoded(&[70_000; 2], 17), [4, 0x70, 0x11, 1]);
    // The example of the format's description.
    let ascending: Vec<u32> = (0..8).collect();
    assert_eq!(
        encoded(&ascending, 3),
        [3, 0b1000_1000, 0b1100_0110, 0b1111_1010]
    );
    let values: Vec<u32> = (0..77).map(|i| i * i).collect();
    assert_eq!(
        decode_hybrid(&encoded(&values, 13), 13, 77)[..77],
        values
            .iter()
            .map(|value| u64::from(*value))
            .collect::<Vec<_>>()
    );
}

fn sections(page: &[u8]) -> [&[u8]; 2] {
    let mut rest = page;
    let sections = [0; 2].map(|_| {
        let length = u32::from_le_bytes(take(&mut rest, 4).try_into().unwrap());
        take(&mut rest, length as usize)
    });
    assert_eq!(rest, [0; 0]);
    sections
}

fn nullable() -> ColumnDescriptor {
    let builder = Type::primitive_type_builder("x", parquet::basic::Type::INT32);
    let column = builder.with_repetition(Repetition::OPTIONAL).build();
    ColumnDescriptor::new(Arc::new(column.unwrap()), 1, 0, ColumnPath::from("x"))
}
