//! Parquet's `DELTA_BINARY_PACKED`: blocks of differences above the least one of the block.

use super::hybrid::{LANES, pack};
use super::{varint, zigzag};

/// Differences of a block, and of a part of it that has its own width.
const BLOCK: usize = 128;
const PARTS: usize = BLOCK / LANES;

/// A number of a column, stored as a signed one of as many bits as its physical type has.
pub trait Number: Copy + Ord {
    /// Whether a chunk's bounds are worth comparing with: not those of roles, layouts and the like.
    const BOUNDED: bool = size_of::<Self>() == size_of::<u64>();
    /// The stored number.
    fn stored(self) -> i64;
    /// A sum or a difference of stored numbers, as the physical type wraps it.
    fn wrap(value: i64) -> i64;
    /// The bits of a wrapped number.
    fn bits(value: i64) -> u64;
}

macro_rules! numbers {
    ($($number:ty: $signed:ty, $unsigned:ty;)*) => {
        $(impl Number for $number {
            fn stored(self) -> i64 {
                i64::from(self as $signed)
            }
            fn wrap(value: i64) -> i64 {
                i64::from(value as $signed)
            }
            fn bits(value: i64) -> u64 {
                u64::from(value as $unsigned)
            }
        })*
    };
}
numbers! {
    u64: i64, u64;
    i64: i64, u64;
    u32: i32, u32;
    u8: i32, u32;
}

/// Appends the values.
pub fn encode<T: Number>(values: &[T], out: &mut Vec<u8>) {
    varint(BLOCK as u64, out);
    varint(PARTS as u64, out);
    varint(values.len() as u64, out);
    let first = values.first().map_or(0, |value| value.stored());
    zigzag(first, out);
    // Each value but the first one, and the one before it.
    let after = values.get(1..).unwrap_or_default();
    for (values, before) in after.chunks(BLOCK).zip(values.chunks(BLOCK)) {
        let mut differences = [0; BLOCK];
        let differences = &mut differences[..values.len()];
        for ((difference, value), before) in differences.iter_mut().zip(values).zip(before) {
            *difference = T::wrap(value.stored().wrapping_sub(before.stored()));
        }
        block::<T>(differences, out);
    }
}

/// Appends a block of one difference or more.
fn block<T: Number>(differences: &[i64], out: &mut Vec<u8>) {
    let least = differences.iter().copied().min().unwrap_or_default();
    zigzag(least, out);
    let mut excesses = [[0; LANES]; PARTS];
    for (excess, difference) in excesses.as_flattened_mut().iter_mut().zip(differences) {
        *excess = T::bits(T::wrap(difference.wrapping_sub(least)));
    }
    let widths = excesses.map(|part| u64::BITS - part.iter().fold(0, |a, b| a | b).leading_zeros());
    out.extend_from_slice(&widths.map(|width| width as u8));
    for (part, width) in excesses.iter().zip(widths) {
        // A part that no value reaches has no bits.
        pack(part, width, out);
    }
}
