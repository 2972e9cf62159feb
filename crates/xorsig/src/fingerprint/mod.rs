//! Diagnostic fingerprints of tensors: `flat-u32-le-v1` and `flat-u32-mix-v1`.
//!
//! A tensor's bytes, in logical row-major order, are little-endian `u32` words; only the last,
//! partial word is padded with zero bytes. The words are split into regions, and each region has
//! two values: the XOR of its words, and the XOR of a nonlinear [`mix`] of each word with its
//! index. `docs/formats/fingerprint.md` is the normative description.
//!
//! [`kernel`] is the portable code and the oracle of every faster level of [`level`];
//! [`regions`] says where a region begins; [`strided`] walks tensors that are not dense.

mod gather;
pub mod kernel;
pub mod layout;
pub mod level;
pub mod regions;
pub mod strided;

use kernel::Values;
use level::Level;
use regions::Regions;

pub use kernel::mix;

/// Name of the plain scheme: XOR of the words of a region.
pub const XOR_SCHEME: &str = "flat-u32-le-v1";
/// Name of the second scheme: XOR of the mixed words of a region.
pub const MIX_SCHEME: &str = "flat-u32-mix-v1";
/// Largest number of regions of a fingerprint.
pub const MAX_REGIONS: usize = 64;

/// Both values of every region, filled piece by piece.
///
/// Pieces may come in any order: a region's value does not depend on it.
#[derive(Clone, Debug)]
pub struct Fingerprint {
    regions: Regions,
    level: Level,
    values: [Values; MAX_REGIONS],
}

impl Fingerprint {
    /// An empty fingerprint of a tensor of `nbytes` logical bytes.
    ///
    /// Returns `None` unless `regions` is 1 to [`MAX_REGIONS`].
    pub fn new(nbytes: u64, regions: usize, level: Level) -> Option<Self> {
        let regions = Regions::new(nbytes, regions)?;
        Some(Self {
            regions,
            level,
            values: [Values::default(); MAX_REGIONS],
        })
    }

    /// Adds `bytes` that stand at `offset`, a multiple of 4, in the tensor's logical bytes.
    ///
    /// Only the piece that ends the tensor may have a length that is not a multiple of 4.
    pub fn add(&mut self, offset: u64, bytes: &[u8]) {
        debug_assert!(offset.is_multiple_of(4));
        let mut word = offset / 4;
        let mut rest = bytes;
        while !rest.is_empty() {
            let region = self.regions.of_word(word);
            let words = self.regions.words(region).end - word;
            let take =
                usize::try_from(words.saturating_mul(4)).map_or(rest.len(), |n| n.min(rest.len()));
            let (piece, tail) = rest.split_at(take);
            let values = self.level.both(piece, word);
            self.values[region].xor ^= values.xor;
            self.values[region].mix ^= values.mix;
            word += words;
            rest = tail;
        }
    }

    /// Both values of each region, in order.
    pub fn values(&self) -> &[Values] {
        &self.values[..self.regions.count()]
    }

    /// The recorded form: every XOR value, then every mix value, as little-endian `u32`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let values = self.values();
        let xor = values.iter().flat_map(|v| v.xor.to_le_bytes());
        xor.chain(values.iter().flat_map(|v| v.mix.to_le_bytes()))
            .collect()
    }
}

/// The XOR of all words of `data`.
pub fn xor(data: &[u8]) -> u32 {
    Level::detect().xor(data)
}

/// The XOR of each region of `data`, or `None` unless `regions` is 1 to [`MAX_REGIONS`].
pub fn region_xor(data: &[u8], regions: usize) -> Option<Vec<u32>> {
    let level = Level::detect();
    let split = Regions::new(data.len() as u64, regions)?;
    Some(
        (0..regions)
            .map(|r| level.xor(&data[split.byte_range_in_memory(r)]))
            .collect(),
    )
}

/// The mix value of each region of `data`, or `None` unless `regions` is 1 to [`MAX_REGIONS`].
pub fn region_mix(data: &[u8], regions: usize) -> Option<Vec<u32>> {
    let level = Level::detect();
    let split = Regions::new(data.len() as u64, regions)?;
    let value = |r| {
        level
            .both(&data[split.byte_range_in_memory(r)], split.words(r).start)
            .mix
    };
    Some((0..regions).map(value).collect())
}

/// Both values of each region of dense bytes, or `None` unless `regions` is in range.
pub fn fingerprint(data: &[u8], regions: usize) -> Option<Fingerprint> {
    let mut fingerprint = Fingerprint::new(data.len() as u64, regions, Level::detect())?;
    fingerprint.add(0, data);
    Some(fingerprint)
}

#[cfg(test)]
mod tests;
