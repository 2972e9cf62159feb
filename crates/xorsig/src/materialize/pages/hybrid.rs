//! Parquet's hybrid of run lengths and bit packing: levels and indices of dictionaries.
//!
//! A page is one run: of equal values if all are equal, else of packed bits.

use super::varint;

/// Numbers that are packed at a time: a multiple of every group that the formats know.
pub const LANES: usize = 32;

/// Appends values of `width` bits, 1 to 32.
pub fn encode(values: &[u32], width: u32, out: &mut Vec<u8>) {
    let Some(first) = values.first() else { return };
    if values.iter().all(|value| value == first) {
        return run(*first, values.len(), width, out);
    }
    let groups = values.len().div_ceil(8);
    packed_header(groups, out);
    let end = out.len() + groups * width as usize;
    for values in values.chunks(LANES) {
        let mut lanes = [0; LANES];
        for (lane, value) in lanes.iter_mut().zip(values) {
            *lane = u64::from(*value);
        }
        pack(&lanes, width, out);
    }
    out.truncate(end);
}

/// Appends `count` times the same value.
pub fn run(value: u32, count: usize, width: u32, out: &mut Vec<u8>) {
    varint((count as u64) << 1, out);
    out.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(8) as usize]);
}

/// Appends what precedes `groups` groups of eight packed values.
pub fn packed_header(groups: usize, out: &mut Vec<u8>) {
    varint((groups as u64) << 1 | 1, out);
}

/// Appends values of `width` bits, 0 to 64, the first one in the lowest bits.
pub fn pack(values: &[u64; LANES], width: u32, out: &mut Vec<u8>) {
    if width <= 8 {
        return pack_narrow(values, width, out);
    }
    let mut bytes = [0; 8 * LANES];
    let mut words = bytes.as_chunks_mut::<8>().0.iter_mut();
    let (mut word, mut bits) = (0u128, 0);
    for value in values {
        word |= u128::from(*value) << bits;
        bits += width;
        if bits >= 64
            && let Some(full) = words.next()
        {
            *full = (word as u64).to_le_bytes();
            word >>= 64;
            bits -= 64;
        }
    }
    if let Some(last) = words.next() {
        *last = (word as u64).to_le_bytes();
    }
    out.extend_from_slice(&bytes[..width as usize * LANES / 8]);
}

/// As [`pack`] for up to 8 bits: eight values at a time are joined in pairs, without branches.
fn pack_narrow(values: &[u64; LANES], width: u32, out: &mut Vec<u8>) {
    let mut bytes = [0; LANES + 8];
    let width_bytes = width as usize;
    for (group, [a, b, c, d, e, f, g, h]) in values.as_chunks::<8>().0.iter().enumerate() {
        let pair = |low: u64, high: u64| low | high << width;
        let (ab, cd, ef, gh) = (pair(*a, *b), pair(*c, *d), pair(*e, *f), pair(*g, *h));
        let (low, high) = (ab | cd << (2 * width), ef | gh << (2 * width));
        let word = low | high << (4 * width);
        bytes[group * width_bytes..][..8].copy_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&bytes[..width_bytes * LANES / 8]);
}
