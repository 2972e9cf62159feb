//! Where the regions of a tensor begin and end.

use std::ops::Range;

use super::MAX_REGIONS;

/// The split of a tensor's words into contiguous regions.
///
/// The first `words % count` regions have one word more than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions {
    nbytes: u64,
    count: u64,
    /// Words of a short region.
    short: u64,
    /// Number of regions with `short + 1` words.
    long: u64,
}

impl Regions {
    /// The split of `nbytes` bytes, or `None` unless `count` is 1 to [`MAX_REGIONS`].
    pub fn new(nbytes: u64, count: usize) -> Option<Self> {
        if !(1..=MAX_REGIONS).contains(&count) {
            return None;
        }
        let words = nbytes.div_ceil(4);
        let count = count as u64;
        Some(Self {
            nbytes,
            count,
            short: words / count,
            long: words % count,
        })
    }

    /// Number of regions.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Logical size of the tensor, bytes.
    pub fn nbytes(&self) -> u64 {
        self.nbytes
    }

    /// Words of the first region.
    pub(super) fn longest(&self) -> u64 {
        self.short + u64::from(self.long > 0)
    }

    /// Words of the last region.
    pub(super) fn shortest(&self) -> u64 {
        self.short
    }

    /// Number of regions with one word more than the last.
    pub(super) fn long_count(&self) -> usize {
        self.long as usize
    }

    /// Global word indices of a region.
    pub fn words(&self, region: usize) -> Range<u64> {
        let begin = |r: u64| r * self.short + r.min(self.long);
        begin(region as u64)..begin(region as u64 + 1)
    }

    /// The region of a word of the tensor.
    pub fn of_word(&self, word: u64) -> usize {
        let in_long = self.long * (self.short + 1);
        let region = match word.checked_sub(in_long) {
            None => word / (self.short + 1),
            Some(beyond) => self.long + beyond.checked_div(self.short).unwrap_or(0),
        };
        region as usize
    }

    /// Half-open byte range of a region, cut at the tensor's size.
    pub fn byte_range(&self, region: usize) -> Range<u64> {
        let words = self.words(region);
        let cut = |word: u64| word.saturating_mul(4).min(self.nbytes);
        cut(words.start)..cut(words.end)
    }

    /// [`Self::byte_range`] of a tensor that lies in memory, so that its offsets are `usize`.
    pub(super) fn byte_range_in_memory(&self, region: usize) -> Range<usize> {
        let range = self.byte_range(region);
        range.start as usize..range.end as usize
    }
}
