//! LZ4 blocks, expanded.
//!
//! Columns of numbers repeat with a short period over thousands of rows, which LZ4 stores as one
//! match that overlaps itself. Decoders of general use copy such a match byte by byte (`lz4_flex`,
//! which compresses here and is the oracle of the tests); this one doubles what it copies.
//! Source of the format: <https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>.

/// Shortest match.
const MIN_MATCH: usize = 4;
/// A length of this many in a token goes on in the bytes that follow.
const LONG: usize = 15;
/// Short runs are copied as this many bytes where there is room for them.
const WIDE: usize = 16;
/// A repeated piece grows to at least this many bytes, which the first-level cache holds.
const PIECE: usize = 4096;

/// Fills `out` with the bytes of `block`; `None` unless the block holds exactly as many.
pub fn expand(block: &[u8], out: &mut [u8]) -> Option<()> {
    let mut rest = block;
    let mut at = 0;
    loop {
        let (token, after) = rest.split_first()?;
        rest = after;
        let literals = length(usize::from(token >> 4), &mut rest)?;
        let (copied, after) = rest.split_at_checked(literals)?;
        match (
            rest.first_chunk::<WIDE>(),
            out[at..].first_chunk_mut::<WIDE>(),
        ) {
            // What is copied too much is overwritten by what follows.
            (Some(from), Some(to)) if literals <= WIDE => *to = *from,
            _ => out[at..].get_mut(..literals)?.copy_from_slice(copied),
        }
        at += literals;
        rest = after;
        if rest.is_empty() {
            return (at == out.len()).then_some(());
        }
        let (distance, after) = rest.split_first_chunk::<2>()?;
        rest = after;
        let distance = usize::from(u16::from_le_bytes(*distance));
        let matched = length(usize::from(token & 15), &mut rest)? + MIN_MATCH;
        if distance == 0 || distance > at || matched > out.len() - at {
            return None;
        }
        repeat(out, at, distance, matched);
        at += matched;
    }
}

/// A length of which a token holds `part`.
#[inline]
fn length(part: usize, rest: &mut &[u8]) -> Option<usize> {
    let mut length = part;
    if part == LONG {
        loop {
            let (byte, after) = rest.split_first()?;
            *rest = after;
            // At most 255 for each byte that is there: no overflow.
            length += usize::from(*byte);
            if *byte != u8::MAX {
                break;
            }
        }
    }
    Some(length)
}

/// Writes `count` bytes at `at`, equal to those that stand `distance` before them.
#[inline]
fn repeat(out: &mut [u8], at: usize, distance: usize, count: usize) {
    let begin = at - distance;
    if count <= WIDE && distance >= WIDE && out.len() - at >= WIDE {
        return out.copy_within(begin..begin + WIDE, at);
    }
    let end = at + count;
    let (mut at, mut piece) = (at, distance);
    while at < end {
        let size = piece.min(end - at);
        out.copy_within(begin..begin + size, at);
        at += size;
        // All that was written so far, a whole number of periods, is copied next.
        if piece < PIECE {
            piece = at - begin;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lz4_flex::block::{compress, decompress};
    use proptest::prelude::*;

    /// Bytes with repeats of every short period, and pieces that are new.
    fn contents() -> impl Strategy<Value = Vec<u8>> {
        let piece = (proptest::collection::vec(any::<u8>(), 1..40), 1usize..300);
        let pieces = proptest::collection::vec(piece, 0..12);
        pieces.prop_map(|pieces| {
            let repeated = |(bytes, times): (Vec<u8>, usize)| bytes.repeat(times);
            pieces.into_iter().flat_map(repeated).collect()
        })
    }

    proptest! {
        #[test]
        fn blocks_of_the_compressor_expand_to_their_contents(contents in contents()) {
            let mut out = vec![0xAA; contents.len()];
            prop_assert_eq!(expand(&compress(&contents), &mut out), Some(()));
            prop_assert_eq!(out, contents);
        }

        #[test]
        fn any_bytes_are_taken_as_the_compressors_decoder_takes_them(
            block in proptest::collection::vec(any::<u8>(), 0..60), size in 0usize..400
        ) {
            let mut out = vec![0; size];
            let expected = decompress(&block, size).ok().filter(|bytes| bytes.len() == size);
            let expanded = expand(&block, &mut out).map(|()| out);
            prop_assert_eq!(expanded, expected);
        }

        #[test]
        fn damaged_blocks_are_taken_as_the_compressors_decoder_takes_them(
            contents in contents(), at in any::<prop::sample::Index>(), byte in any::<u8>()
        ) {
            let mut block = compress(&contents);
            let at = at.index(block.len());
            block[at] = byte;
            let size = contents.len();
            let mut out = vec![0; size];
            let expected = decompress(&block, size).ok().filter(|bytes| bytes.len() == size);
            let expanded = expand(&block, &mut out).map(|()| out);
            prop_assert_eq!(expanded, expected);
        }
    }

    #[test]
    fn a_block_cut_anywhere_or_of_another_size_is_refused() {
        let contents: Vec<u8> = (0..2000u32)
            .flat_map(|i| (i / 7 % 50).to_le_bytes())
            .collect();
        let block = compress(&contents);
        let mut out = vec![0; contents.len()];
        for cut in 0..block.len() {
            assert_eq!(expand(&block[..cut], &mut out), None, "cut at {cut}");
        }
        assert_eq!(expand(&block, &mut out[1..]), None);
        assert_eq!(expand(&block, &mut vec![0; contents.len() + 1]), None);
    }
}
