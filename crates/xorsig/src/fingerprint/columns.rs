//! The walk over columns: tensors whose memory runs across their rows, such as transposes.
//!
//! Neither value needs the words in order. So memory is read as it lies, one short piece of every
//! column after another; a lane holds the sum of one row, and the mixer gets the index of each
//! lane's word. No element is moved, where a copy in logical order would move each twice.

use super::dense::Mixer;
use super::kernel::{self, GOLDEN, Values};
use super::lanes::Lanes;

/// Registers whose columns are read together: neighbouring cache lines of one page.
const GROUP: usize = 4;
/// How many columns ahead memory is asked for: the processor sees no stream in columns that lie
/// pages apart.
const AHEAD: isize = 16;
/// Most lanes of a [`Block`]: a group of 512-bit registers.
pub(super) const MOST_LANES: usize = GROUP * 16;

/// Some rows of a matrix that lie side by side in memory, column by column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// The first row's first element.
    pointer: *const u8,
    /// Distance of two columns, bytes.
    step: isize,
    columns: usize,
    itemsize: usize,
    /// Global index of the first row's first word.
    first: u64,
    /// Distance of two rows in logical order, words.
    row_words: u64,
}

impl Block {
    /// Rows at `pointer`, one element (1, 2, 4, 8 or 16 bytes) after another, whose columns are
    /// `step` bytes apart; a row is made of whole words.
    ///
    /// # Safety
    /// In each of the columns, the elements that the lanes of the call ([`lanes_of`]) stand for
    /// are readable.
    pub(super) unsafe fn new(
        pointer: *const u8,
        step: isize,
        [columns, itemsize]: [usize; 2],
        [first, row_words]: [u64; 2],
    ) -> Self {
        debug_assert!((columns * itemsize).is_multiple_of(4));
        Self {
            pointer,
            step,
            columns,
            itemsize,
            first,
            row_words,
        }
    }

    /// Global index of the first word of a lane.
    fn index_of_lane(&self, lane: usize) -> u64 {
        // A shift: a division for each lane would take longer than a short row.
        let words = words_of_element(self.itemsize);
        let row = lane >> words.trailing_zeros();
        self.first + row as u64 * self.row_words + (lane & (words - 1)) as u64
    }

    /// The word of a lane whose first column is `column`.
    ///
    /// # Safety
    /// The lane is one of the call's.
    unsafe fn word(&self, lane: usize, column: usize) -> u32 {
        let words = words_of_element(self.itemsize);
        let wide = self.itemsize.min(4);
        let at = (lane / words) * self.itemsize + (lane % words) * 4;
        let mut word = [0; 4];
        for (i, part) in word.chunks_exact_mut(wide).enumerate() {
            let source = self
                .pointer
                .wrapping_offset(self.step * (column + i) as isize);
            // SAFETY: the element is readable, as `new` was promised.
            unsafe {
                std::ptr::copy_nonoverlapping(source.wrapping_add(at), part.as_mut_ptr(), wide);
            }
        }
        u32::from_le_bytes(word)
    }
}

/// Words that one element of a row contributes to a column of lanes.
fn words_of_element(itemsize: usize) -> usize {
    (itemsize / 4).max(1)
}

/// Columns that one word takes.
fn columns_of_word(itemsize: usize) -> usize {
    (4 / itemsize).max(1)
}

/// Rows that `lanes` lanes stand for.
pub(super) fn rows_of_lanes(lanes: usize, itemsize: usize) -> usize {
    lanes / words_of_element(itemsize)
}

/// Numbers of lanes that a walk over `L` offers, most first.
pub(super) const fn lanes_of<L: Lanes>() -> [usize; 2] {
    [GROUP * L::BYTES / 4, L::BYTES / 4]
}

/// Both values of each lane, over all columns: the oracle of [`sum`].
pub(super) fn sum_portable(block: &Block, out: &mut [Values]) {
    for (lane, out) in out.iter_mut().enumerate() {
        *out = Values::default();
        let mut index = block.index_of_lane(lane);
        for column in (0..block.columns).step_by(columns_of_word(block.itemsize)) {
            // SAFETY: the caller asks for lanes that it promised.
            let word = unsafe { block.word(lane, column) };
            out.xor ^= word;
            out.mix ^= kernel::mix(word, index);
            index += words_of_element(block.itemsize) as u64;
        }
    }
}

/// Both values of each lane, over all columns; the length of `out` is one of [`lanes_of`].
///
/// The index of a row must not pass a multiple of 2^32 words: its key then takes another course.
///
/// # Safety
/// The instruction set of `L` is available.
#[inline(always)]
pub(super) unsafe fn sum<L: Lanes>(block: &Block, out: &mut [Values]) {
    // SAFETY: forwarded from this function's caller, and from that of `Block::new`.
    unsafe {
        let group = out.len() == lanes_of::<L>()[0];
        match (block.itemsize, group) {
            (1, true) => sum_group::<L, GROUP, 1>(block, out),
            (1, false) => sum_group::<L, 1, 1>(block, out),
            (2, true) => sum_group::<L, GROUP, 2>(block, out),
            (2, false) => sum_group::<L, 1, 2>(block, out),
            (_, true) => sum_group::<L, GROUP, 4>(block, out),
            (_, false) => sum_group::<L, 1, 4>(block, out),
        }
    }
}

/// [`sum`] over `N` registers; `PART` bytes of a word come from each column.
///
/// # Safety
/// As for [`sum`]; `out` has `N` registers' lanes.
#[inline(always)]
unsafe fn sum_group<L: Lanes, const N: usize, const PART: usize>(
    block: &Block,
    out: &mut [Values],
) {
    let lanes = L::BYTES / 4;
    assert_eq!(out.len(), N * lanes);
    let mut words = [0u32; MOST_LANES];
    for (lane, key) in words[..N * lanes].iter_mut().enumerate() {
        *key = kernel::key(block.index_of_lane(lane));
    }
    let step = GOLDEN.wrapping_mul(words_of_element(block.itemsize) as u32);
    // SAFETY: loads stay in the promised elements; `words` has room for `N` registers.
    unsafe {
        let mut mixers = [Mixer::<L>::with_keys(L::zero(), step); N];
        for (i, mixer) in mixers.iter_mut().enumerate() {
            let keys = L::load(words.as_ptr().cast::<u8>().add(i * L::BYTES));
            *mixer = Mixer::with_keys(keys, step);
        }
        let (mut xors, mut mixes) = ([L::zero(); N], [L::zero(); N]);
        let narrow = L::BYTES / 4 * PART;
        let columns = columns_of_word(PART);
        let mut at = block.pointer;
        for _ in 0..block.columns / columns {
            for i in 0..N {
                let source = at.wrapping_add(i * narrow);
                if (i * narrow).is_multiple_of(64) {
                    for column in AHEAD..AHEAD + columns as isize {
                        L::prefetch(source.wrapping_offset(block.step * column));
                    }
                }
                let word = load_columns::<L, PART>(source, block.step);
                xors[i] = xors[i].xor(word);
                mixes[i] = mixes[i].xor(mixers[i].next(word));
            }
            at = at.wrapping_offset(block.step * columns as isize);
        }
        for i in 0..N {
            let out = &mut out[i * lanes..][..lanes];
            xors[i].store(words.as_mut_ptr().cast());
            out.iter_mut()
                .zip(words)
                .for_each(|(out, word)| out.xor = word);
            mixes[i].store(words.as_mut_ptr().cast());
            out.iter_mut()
                .zip(words)
                .for_each(|(out, word)| out.mix = word);
        }
    }
}

/// One word for each lane: an element, a part of one, or the elements of several columns.
///
/// # Safety
/// As for [`sum`].
#[inline(always)]
unsafe fn load_columns<L: Lanes, const PART: usize>(at: *const u8, step: isize) -> L {
    // SAFETY: forwarded from this function's caller.
    unsafe {
        match PART {
            1 => {
                let mut word = L::load_bytes(at.wrapping_offset(3 * step));
                for column in [2, 1, 0] {
                    let next = L::load_bytes(at.wrapping_offset(column * step));
                    word = word.shift_left_8().xor(next);
                }
                word
            }
            2 => {
                let high = L::load_halves(at.wrapping_offset(step));
                high.shift_left_16().xor(L::load_halves(at))
            }
            _ => L::load(at),
        }
    }
}
