//! Where the bounds of regions cut a piece of a tensor.

use std::ops::Range;

use super::regions::Regions;

/// The parts of a piece of a tensor, one for each region that it meets, as byte ranges in it.
///
/// Each is computed when it is asked for: its few instructions then run while the part before it
/// is being loaded. A list made beforehand takes 64 regions as long as reading 8 KiB.
#[derive(Clone, Debug)]
pub(super) struct Cuts {
    length: usize,
    begin: usize,
    /// Where the region of the next part ends, counted from the piece's first byte.
    bound: usize,
    /// Bytes of a short region.
    short: usize,
    /// How many of the regions behind the next one have one word more than the others.
    long_left: usize,
    /// How many parts are left.
    left: usize,
}

impl Cuts {
    /// The parts of `length` bytes that stand at `offset` in the tensor.
    #[inline]
    pub(super) fn new(regions: &Regions, offset: u64, length: usize) -> Self {
        let first = regions.of_word(offset / 4);
        let left = if length == 0 {
            0
        } else {
            regions.of_word((offset + length as u64 - 1) / 4) - first + 1
        };
        Self {
            length,
            begin: 0,
            bound: (regions.words(first).end * 4 - offset) as usize,
            short: regions.shortest() as usize * 4,
            long_left: regions.long_count().saturating_sub(first + 1),
            left,
        }
    }

    /// All of `length` bytes as one part.
    pub(super) fn none(length: usize) -> Self {
        Self {
            length,
            begin: 0,
            bound: length,
            short: 0,
            long_left: 0,
            left: 1,
        }
    }
}

impl Iterator for Cuts {
    type Item = Range<usize>;

    #[inline(always)]
    fn next(&mut self) -> Option<Range<usize>> {
        self.left = self.left.checked_sub(1)?;
        let end = self.bound.min(self.length);
        let part = self.begin..end;
        self.begin = end;
        let long = usize::from(self.long_left > 0);
        self.long_left -= long;
        self.bound = self.bound.saturating_add(self.short + 4 * long);
        Some(part)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Cuts {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_of_the_regions() {
        for (nbytes, count) in [
            (0, 1),
            (3, 4),
            (40, 4),
            (41, 4),
            (1001, 7),
            (520, 64),
            (257, 64),
        ] {
            let regions = Regions::new(nbytes, count).unwrap();
            for offset in (0..=nbytes).step_by(4) {
                let most = nbytes - offset;
                for length in [0, 4, 8, most / 2 / 4 * 4, most] {
                    let end = offset + length.min(most);
                    let expected: Vec<_> = (0..count)
                        .map(|region| regions.byte_range(region))
                        .map(|bytes| bytes.start.max(offset)..bytes.end.min(end))
                        .filter(|bytes| bytes.start < bytes.end)
                        .map(|bytes| (bytes.start - offset) as usize..(bytes.end - offset) as usize)
                        .collect();
                    let cuts = Cuts::new(&regions, offset, (end - offset) as usize);
                    assert_eq!(cuts.len(), expected.len());
                    assert_eq!(
                        cuts.collect::<Vec<_>>(),
                        expected,
                        "{offset} to {end} of {nbytes}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_is_not_cut_is_one_part() {
        for length in [0, 1, 100] {
            assert!(Cuts::none(length).eq(std::iter::once(0..length)));
        }
    }
}
