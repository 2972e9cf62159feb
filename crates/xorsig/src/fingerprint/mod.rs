//! Diagnostic fingerprints of tensors: `flat-u32-le-v1` and `flat-u32-mix-v1`.
//!
//! A tensor's bytes, in logical row-major order, are little-endian `u32` words; only the last,
//! partial word is padded with zero bytes. The words are split into regions, and each region has
//! two values: the XOR of its words, and the XOR of a nonlinear [`mix`] of each word with its
//! index. `docs/formats/fingerprint.md` is the normative description.
//!
//! [`kernel`] is the portable code and the oracle of every faster level of [`level`], all of which
//! are one walk over dense memory (`dense.rs`) for another vector register (`avx512.rs`, `avx2.rs`,
//! `neon.rs`); [`regions`] says where a region begins; [`strided`] walks tensors that are not
//! dense; [`threads`] says how many threads share the work.

mod ahead;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod columns;
mod cuts;
mod dense;
mod gather;
pub mod kernel;
mod lanes;
pub mod layout;
pub mod level;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
pub mod regions;
mod small;
pub mod strided;
pub mod threads;

use cuts::Cuts;
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
        if bytes.is_empty() {
            return;
        }
        if self.is_whole(offset, bytes) && small::takes_both(&self.regions) {
            let mut values = [Values::default(); MAX_REGIONS];
            let values = &mut values[..self.regions.count()];
            self.level.small_both(bytes, &self.regions, values);
            return self.add_values(0, values);
        }
        let first = self.regions.of_word(offset / 4);
        if offset + bytes.len() as u64 <= self.regions.byte_range(first).end {
            let value = self.level.both(bytes, offset / 4);
            return self.add_values(first, &[value]);
        }
        let mut values = [Values::default(); MAX_REGIONS];
        let cuts = Cuts::new(&self.regions, offset, bytes.len());
        let values = &mut values[..cuts.len()];
        self.level.both_parts(bytes, offset / 4, cuts, values);
        self.add_values(first, values);
    }

    /// Adds values of neighbouring regions, from region `first` on.
    fn add_values(&mut self, first: usize, values: &[Values]) {
        for (sum, value) in self.values[first..].iter_mut().zip(values) {
            sum.xor ^= value.xor;
            sum.mix ^= value.mix;
        }
    }

    /// [`Self::add`] of all bytes of the tensor, shared by up to `threads` threads.
    pub fn add_all(&mut self, bytes: &[u8], threads: usize) {
        if threads::parts(bytes.len(), threads) == 1 {
            return self.add(0, bytes);
        }
        let empty = Self {
            values: [Values::default(); MAX_REGIONS],
            ..*self
        };
        let read = |offset, part: &[u8]| {
            let mut fingerprint = empty.clone();
            fingerprint.add(offset, part);
            fingerprint.values
        };
        threads::share(bytes, threads, read, |part| self.add_values(0, &part));
    }

    /// The region that holds `words` words from `index` on, if it is one, and if the index's high
    /// half is one too.
    fn region_of_row(&self, index: u64, words: usize) -> Option<usize> {
        let end = index + words as u64;
        let region = self.regions.of_word(index);
        let whole = end <= self.regions.words(region).end && index >> 32 == (end - 1) >> 32;
        whole.then_some(region)
    }

    fn is_whole(&self, offset: u64, bytes: &[u8]) -> bool {
        offset == 0 && bytes.len() as u64 == self.regions.nbytes()
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

/// Writes the XOR of each region of `data`; the length of `out` is the number of regions.
///
/// Returns `false`, and writes nothing, unless that is 1 to [`MAX_REGIONS`].
pub fn region_xor_into(level: Level, data: &[u8], out: &mut [u32], threads: usize) -> bool {
    let Some(regions) = Regions::new(data.len() as u64, out.len()) else {
        return false;
    };
    if small::takes_xor(&regions) {
        level.small_xor(data, &regions, out);
        return true;
    }
    if threads::parts(data.len(), threads) == 1 {
        let cuts = Cuts::new(&regions, 0, data.len());
        // No region is empty: there are more words than a small tensor has.
        level.xor_parts(data, cuts, out);
        return true;
    }
    out.fill(0);
    let read = |offset, part: &[u8]| {
        let mut values = [0; MAX_REGIONS];
        let cuts = Cuts::new(&regions, offset, part.len());
        let met = cuts.len();
        level.xor_parts(part, cuts, &mut values[..met]);
        (regions.of_word(offset / 4), values)
    };
    threads::share(data, threads, read, |(first, values)| {
        for (sum, value) in out[first..].iter_mut().zip(values) {
            *sum ^= value;
        }
    });
    true
}

/// Writes both values of each region of `data`, which are all bytes of a tensor.
fn both_into(level: Level, data: &[u8], regions: &Regions, out: &mut [Values]) {
    if small::takes_both(regions) {
        return level.small_both(data, regions, out);
    }
    let cuts = Cuts::new(regions, 0, data.len());
    let (met, empty) = out.split_at_mut(cuts.len());
    level.both_parts(data, 0, cuts, met);
    empty.fill(Values::default());
}

/// The XOR of each region of `data`, or `None` unless `regions` is 1 to [`MAX_REGIONS`].
pub fn region_xor(data: &[u8], regions: usize) -> Option<Vec<u32>> {
    let mut values = vec![0; regions.min(MAX_REGIONS + 1)];
    region_xor_into(Level::detect(), data, &mut values, 1).then_some(values)
}

/// The mix value of each region of `data`, or `None` unless `regions` is 1 to [`MAX_REGIONS`].
pub fn region_mix(data: &[u8], regions: usize) -> Option<Vec<u32>> {
    let fingerprint = fingerprint(data, regions)?;
    Some(
        fingerprint
            .values()
            .iter()
            .map(|values| values.mix)
            .collect(),
    )
}

/// Both values of each region of dense bytes, or `None` unless `regions` is in range.
pub fn fingerprint(data: &[u8], regions: usize) -> Option<Fingerprint> {
    let mut fingerprint = Fingerprint::new(data.len() as u64, regions, Level::detect())?;
    fingerprint.add(0, data);
    Some(fingerprint)
}

#[cfg(test)]
mod tests;
