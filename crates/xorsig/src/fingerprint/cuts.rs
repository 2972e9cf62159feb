//! Where the bounds of regions cut a piece of a tensor.

use std::mem::MaybeUninit;

use super::MAX_REGIONS;
use super::regions::Regions;

/// Where a piece of a tensor is cut by the bounds of regions.
pub(super) struct Cuts {
    /// Offsets in the piece; one more than there are regions.
    offsets: [MaybeUninit<usize>; MAX_REGIONS + 1],
    first: usize,
    count: usize,
}

impl Cuts {
    /// The cuts of `length` bytes that stand at `offset` in the tensor.
    #[inline]
    pub(super) fn new(regions: &Regions, offset: u64, length: usize) -> Self {
        let first = if offset == 0 {
            0
        } else {
            regions.of_word(offset / 4)
        };
        let mut cuts = Self {
            offsets: [const { MaybeUninit::uninit() }; MAX_REGIONS + 1],
            first,
            count: 0,
        };
        cuts.offsets[0].write(0);
        // Where the next region begins, counted from the piece's first byte.
        let mut bound = (regions.words(first).end * 4 - offset) as usize;
        let mut end = 0;
        while end < length {
            end = bound.min(length);
            cuts.count += 1;
            cuts.offsets[cuts.count].write(end);
            bound = bound.saturating_add(regions.words_in(first + cuts.count) as usize * 4);
        }
        cuts
    }

    /// The bounds of the pieces, the first 0, the last the length.
    pub(super) fn as_slice(&self) -> &[usize] {
        // SAFETY: `new` has written the first `count + 1` offsets.
        unsafe { std::slice::from_raw_parts(self.offsets.as_ptr().cast(), self.count + 1) }
    }

    /// The region of the first byte.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// How many regions the piece meets.
    pub(super) fn count(&self) -> usize {
        self.count
    }
}
