//! The portable kernel: both values of a run of words, and the definition of the mixer.
//!
//! Everything here is written over fixed arrays of lanes, so that the compiler turns it into
//! vector code for whatever instruction set the caller is compiled for ([`super::level`]).

/// Multiplier of the low half of a word's index: 2^32 divided by the golden ratio, odd.
pub(super) const GOLDEN: u32 = 0x9E37_79B1;
/// Multiplier of the high half of a word's index (MurmurHash3's first final constant is odd too).
const HIGH: u32 = 0x85EB_CA77;
/// First multiplier of the mixer, from Ettinger's search ("hash prospector", lowbias32).
pub(super) const FIRST: u32 = 0x7FEB_352D;
/// Second multiplier of the mixer, same source.
pub(super) const SECOND: u32 = 0x846C_A68B;

/// Words handled together; 16 fill one 512-bit register.
const LANES: usize = 16;
const BLOCK: usize = 4 * LANES;

/// The XOR and the mix value of a set of words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// `flat-u32-le-v1`: XOR of the words.
    pub xor: u32,
    /// `flat-u32-mix-v1`: XOR of the mixed words.
    pub mix: u32,
}

/// What a word's index contributes to its mix.
#[inline(always)]
pub(super) fn key(index: u64) -> u32 {
    let high = ((index >> 32) as u32).wrapping_mul(HIGH);
    (index as u32).wrapping_mul(GOLDEN).wrapping_add(high)
}

/// Mixes a word with the key of its index.
///
/// The first shift is 15, not lowbias32's 16: a shift of 16 maps two flipped bf16 signs
/// (`0x8000_8000`) to the one bit that multiplication cannot spread. The key is added at the end
/// because XOR of words sees only what is not linear over XOR: a carry is, a shift is not.
#[inline(always)]
fn mix_keyed(word: u32, key: u32) -> u32 {
    let x = word ^ key;
    let x = (x ^ (x >> 15)).wrapping_mul(FIRST);
    let x = (x ^ (x >> 15)).wrapping_mul(SECOND);
    (x ^ (x >> 15)).wrapping_add(key)
}

/// The mixer of `flat-u32-mix-v1` for the word at global word index `index`.
pub fn mix(word: u32, index: u64) -> u32 {
    mix_keyed(word, key(index))
}

/// XOR of the words of `data`; the last, partial word is padded with zero bytes.
#[inline(always)]
pub(super) fn xor(data: &[u8]) -> u32 {
    // A plain reduction is the form that the compiler vectorises best when nothing is mixed.
    let (words, tail) = data.as_chunks::<4>();
    words
        .iter()
        .fold(padded(tail), |acc, word| acc ^ u32::from_le_bytes(*word))
}

/// Both values of the words of `data`, whose first word has global index `first`.
#[inline(always)]
pub(super) fn both(data: &[u8], first: u64) -> Values {
    let mut values = Values::default();
    for (piece, key) in keyed_pieces(data, first) {
        let part = both_keyed(piece, key);
        values.xor ^= part.xor;
        values.mix ^= part.mix;
    }
    values
}

/// `data`, cut where the high half of the word index changes, with the key of each first word.
///
/// Within a piece, keys go up by [`GOLDEN`] from word to word.
#[inline(always)]
pub(super) fn keyed_pieces(data: &[u8], first: u64) -> impl Iterator<Item = (&[u8], u32)> {
    let (mut rest, mut index) = (data, first);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let words = (1u64 << 32) - (index & 0xFFFF_FFFF);
        let take = usize::try_from(words * 4).map_or(rest.len(), |n| n.min(rest.len()));
        let (piece, tail) = rest.split_at(take);
        let result = (piece, key(index));
        index += words;
        rest = tail;
        Some(result)
    })
}

/// The key of the word `words` after one with key `key`, within a piece.
#[inline(always)]
pub(super) fn key_after(key: u32, words: usize) -> u32 {
    key.wrapping_add(GOLDEN.wrapping_mul(words as u32))
}

/// [`both`] for words whose keys are `first`, `first + GOLDEN`, ….
#[inline(always)]
fn both_keyed(data: &[u8], first: u32) -> Values {
    let mut xors = [0u32; LANES];
    let mut mixes = [0u32; LANES];
    let mut keys: [u32; LANES] =
        std::array::from_fn(|lane| first.wrapping_add(GOLDEN.wrapping_mul(lane as u32)));
    let (blocks, rest) = data.as_chunks::<BLOCK>();
    for block in blocks {
        let (words, _) = block.as_chunks::<4>();
        for lane in 0..LANES {
            let word = u32::from_le_bytes(words[lane]);
            xors[lane] ^= word;
            mixes[lane] ^= mix_keyed(word, keys[lane]);
            keys[lane] = keys[lane].wrapping_add(GOLDEN.wrapping_mul(LANES as u32));
        }
    }
    let mut values = Values {
        xor: xors.iter().fold(0, |acc, lane| acc ^ lane),
        mix: mixes.iter().fold(0, |acc, lane| acc ^ lane),
    };
    let (words, tail) = rest.as_chunks::<4>();
    let last = if tail.is_empty() {
        None
    } else {
        Some(padded(tail))
    };
    let words = words
        .iter()
        .map(|word| u32::from_le_bytes(*word))
        .chain(last);
    for (word, key) in words.zip(keys) {
        values.xor ^= word;
        values.mix ^= mix_keyed(word, key);
    }
    values
}

/// The word of fewer than four bytes, padded with zero bytes.
#[inline(always)]
fn padded(tail: &[u8]) -> u32 {
    let mut word = [0; 4];
    word[..tail.len()].copy_from_slice(tail);
    u32::from_le_bytes(word)
}
