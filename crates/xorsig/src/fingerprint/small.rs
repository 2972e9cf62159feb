//! The walk over tensors with few words a region.
//!
//! Setting up a loop for each region would cost more than its words. Regions come in two sizes,
//! one word apart, so each size is taken in a row: up to [`UNROLLED`] words by code for exactly
//! that size, up to one register by one masked load each. Both schemes are computed by mixing all
//! words into a buffer first, whatever the regions, and then reducing data and buffer alike.

use std::mem::MaybeUninit;

use super::MAX_REGIONS;
use super::cuts::Cuts;
use super::dense::{self, Mixer, unset, written};
use super::kernel::{self, Values};
use super::lanes::Lanes;
use super::regions::Regions;

/// Most words of a region for which there is code of its own.
const UNROLLED: u64 = 8;
/// Most words of a region of a small tensor: a register of 512 bits.
const SMALL_REGION: u64 = 16;
/// Most words that are mixed into a buffer: 16 KiB, which the first-level cache holds beside the
/// data.
const MIXED_WORDS: usize = 4096;
/// Fewest regions for which mixing into a buffer is worth a second pass.
const MIXED_REGIONS: usize = 8;

/// Whether [`xor`] takes a tensor.
pub(super) fn takes_xor(regions: &Regions) -> bool {
    regions.longest() <= SMALL_REGION
}

/// Whether [`both`] takes a tensor.
pub(super) fn takes_both(regions: &Regions) -> bool {
    regions.nbytes() <= 4 * MIXED_WORDS as u64 && regions.count() >= MIXED_REGIONS
}

/// XOR of each region of a small tensor.
///
/// # Safety
/// The instruction set of `L` is available.
#[inline(always)]
pub(super) unsafe fn xor<L: Lanes>(data: &[u8], regions: &Regions, out: &mut [u32]) {
    let longest = regions.longest();
    if longest <= UNROLLED {
        unrolled(data, regions, out);
    } else if longest as usize * 4 <= L::BYTES {
        // SAFETY: forwarded from this function's caller; a region fits one register.
        unsafe { one_load_each::<L>(data, regions, out) };
    } else {
        let cuts = Cuts::new(regions, 0, data.len());
        let (met, empty) = out.split_at_mut(cuts.len());
        // SAFETY: forwarded from this function's caller.
        unsafe { dense::xor_parts::<L>(data, cuts, met) };
        empty.fill(0);
    }
}

/// Both values of each region of a tensor of at most [`MIXED_WORDS`] words.
///
/// # Safety
/// The instruction set of `L` is available.
#[inline(always)]
pub(super) unsafe fn both<L: Lanes>(data: &[u8], regions: &Regions, out: &mut [Values]) {
    let mut words = [0; MAX_REGIONS];
    let words = &mut words[..out.len()];
    // SAFETY: forwarded from this function's caller.
    unsafe { xor::<L>(data, regions, words) };
    out.iter_mut()
        .zip(&*words)
        .for_each(|(out, word)| out.xor = *word);
    let mut buffer = [const { MaybeUninit::uninit() }; MIXED_WORDS + 16];
    // SAFETY: as above.
    unsafe {
        let mixed = mix_words::<L>(data, &mut buffer);
        xor::<L>(mixed, regions, words);
    }
    out.iter_mut()
        .zip(&*words)
        .for_each(|(out, word)| out.mix = *word);
}

/// The mixed words of `data`, whose first word has index 0, as bytes.
///
/// # Safety
/// The instruction set of `L` is available.
#[inline(always)]
unsafe fn mix_words<'a, L: Lanes>(
    data: &[u8],
    buffer: &'a mut [MaybeUninit<u32>; MIXED_WORDS + 16],
) -> &'a [u8] {
    let count = data.len().div_ceil(4);
    assert!(count <= MIXED_WORDS);
    let out = buffer.as_mut_ptr().cast::<u8>();
    // SAFETY: loads stay in `data`; the buffer has room for the last register, since there are at
    // most `MIXED_WORDS` words and a register has at most 16; `count` words are written.
    unsafe {
        let mut mixer = Mixer::<L>::new(kernel::key(0));
        let whole = data.len() / L::BYTES * L::BYTES;
        for at in (0..whole).step_by(L::BYTES) {
            mixer
                .next(L::load(data.as_ptr().add(at)))
                .store(out.add(at));
        }
        if whole < data.len() {
            let words = L::load_part(data.as_ptr().add(whole), 0..data.len() - whole);
            mixer.next(words).store(out.add(whole));
        }
        std::slice::from_raw_parts(out, 4 * count)
    }
}

/// XOR of each region of at most one register.
///
/// # Safety
/// The instruction set of `L` is available, and no region has more bytes than its registers.
#[inline(always)]
unsafe fn one_load_each<L: Lanes>(data: &[u8], regions: &Regions, out: &mut [u32]) {
    let mut sums = unset::<L, MAX_REGIONS>();
    let (long, size) = (regions.long_count(), regions.shortest() as usize * 4);
    let last = regions.count() - 1;
    // SAFETY: every region but the last has all of its bytes, so these loads stay in `data`.
    unsafe {
        let mut at = data.as_ptr();
        for sum in &mut sums[..long.min(last)] {
            sum.write(L::load_part(at, 0..size + 4));
            at = at.add(size + 4);
        }
        for sum in &mut sums[long.min(last)..last] {
            sum.write(L::load_part(at, 0..size));
            at = at.add(size);
        }
        let left = data.len() - (at.addr() - data.as_ptr().addr());
        sums[last].write(L::load_part(at, 0..left));
        L::fold_all(written(&sums, last + 1), out);
    }
}

/// XOR of each region of at most [`UNROLLED`] words.
#[inline(always)]
pub(super) fn unrolled(data: &[u8], regions: &Regions, out: &mut [u32]) {
    let (long, size) = (regions.long_count(), regions.shortest() as usize);
    let (longs, shorts) = out.split_at_mut(long);
    let cut = data.len().min(long * (size + 1) * 4);
    reduce_sized(size + 1, &data[..cut], longs);
    reduce_sized(size, &data[cut..], shorts);
    if !data.len().is_multiple_of(4) {
        // The region with the partial word was left out, for it lacks bytes.
        let last = regions.of_word(data.len() as u64 / 4);
        out[last] = kernel::xor(&data[regions.byte_range_in_memory(last)]);
    }
}

/// XOR of each run of `size` words.
#[inline(always)]
fn reduce_sized(size: usize, data: &[u8], out: &mut [u32]) {
    match size {
        0 => out.fill(0),
        1 => reduce::<1>(data, out),
        2 => reduce::<2>(data, out),
        3 => reduce::<3>(data, out),
        4 => reduce::<4>(data, out),
        5 => reduce::<5>(data, out),
        6 => reduce::<6>(data, out),
        7 => reduce::<7>(data, out),
        8 => reduce::<8>(data, out),
        // The size of long regions where there are none.
        _ => debug_assert!(out.is_empty()),
    }
}

/// [`reduce_sized`] for a size that the compiler knows.
#[inline(always)]
fn reduce<const SIZE: usize>(data: &[u8], out: &mut [u32]) {
    let words = data.as_chunks::<4>().0.as_chunks::<SIZE>().0;
    for (run, out) in words.iter().zip(out) {
        *out = run
            .iter()
            .fold(0, |acc, word| acc ^ u32::from_le_bytes(*word));
    }
}
