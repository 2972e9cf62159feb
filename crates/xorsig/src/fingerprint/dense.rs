//! The walk over dense memory, written once over [`Lanes`] and compiled per instruction set.
//!
//! **Plain scheme.** XOR of little-endian words is, for each of the four byte positions of a
//! word, the XOR of the bytes there. So a region is just a range of bytes, and they may be
//! summed by *address* modulo the register size instead of by position: every load but the two
//! at a region's ends is aligned whatever the tensor's start, and one rotation of the final word
//! by the start's offset puts the bytes in place. (BLAKE3 and crc32fast load unaligned; below
//! 1 MiB that costs half of the speed here, where nothing but the load takes time.)
//!
//! **Both schemes.** The mixer needs whole words beside their index, so loads are unaligned; the
//! arithmetic hides what they cost.
//!
//! Tensors with few words a region have a walk of their own: `small.rs`.

use std::mem::MaybeUninit;

use super::cuts::Cuts;
use super::kernel::{self, FIRST, GOLDEN, SECOND, Values};
use super::lanes::Lanes;
use super::{MAX_REGIONS, ahead};

/// Streams that long pieces are read as where memory is asked for ahead ([`ahead`]).
///
/// With one stream the mixer runs over 192 MiB at 0.88 of the speed of a loop that only reads, with
/// two at 0.97 and with four at 1.03; each line is asked for twice (Xeon with AVX-512).
const STREAMS: usize = 4;
/// Fewest bytes of a piece that is read as streams.
const STREAMED: usize = 4 << 10;
/// How far ahead of each stream memory is asked for, bytes: into the second-level cache.
const AHEAD: usize = 4096;
/// As [`AHEAD`], once more, into the first-level cache.
const SHORTLY_AHEAD: usize = 512;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Regions whose sums are folded together. A register for each of 64 regions would fill 4 KiB of
/// stack that every walk over a tensor drives out of the first-level cache; these few stay there.
const GROUP: usize = 16;

/// XOR of each part of `data`; parts begin at multiples of 4, and there is one for each of `out`.
///
/// # Safety
/// The instruction set of `L` is available.
#[inline(always)]
pub(super) unsafe fn xor_parts<L: Lanes>(data: &[u8], mut parts: Cuts, out: &mut [u32]) {
    assert_eq!(parts.len(), out.len());
    for out in out.chunks_mut(GROUP) {
        let mut sums = unset::<L, GROUP>();
        for (sum, part) in sums[..out.len()].iter_mut().zip(&mut parts) {
            // SAFETY: forwarded from this function's caller.
            sum.write(unsafe { sum_by_address(data, part.start, part.end) });
        }
        // SAFETY: as above; there is a part, and so a sum, for each of `out`.
        unsafe { L::fold_all(written(&sums, out.len()), out) };
    }
    let start = data.as_ptr().addr() as u32 % 4;
    if start != 0 {
        out.iter_mut()
            .for_each(|value| *value = value.rotate_right(8 * start));
    }
}

/// XOR of `data[begin..end]`, byte by address modulo the register size.
///
/// # Safety
/// The instruction set of `L` is available.
#[inline(always)]
unsafe fn sum_by_address<L: Lanes>(data: &[u8], begin: usize, end: usize) -> L {
    let length = data[begin..end].len();
    // From `data`, not from the region: a register at a region's end may reach its neighbour.
    let start = data.as_ptr().wrapping_add(begin);
    let lead = start.addr() % L::BYTES;
    let mut at = start.wrapping_sub(lead);
    let mut left = lead + length;
    // SAFETY: `load_part` reads only bytes of the region. `load_within` is used where the whole
    // register lies in `data`, and `load` where it lies in the region.
    unsafe {
        let mut sums = [L::zero(); 4];
        if lead != 0 {
            let last = left.min(L::BYTES);
            sums[0] = if begin >= lead && data.len() - begin >= L::BYTES - lead {
                L::load_within(at, lead..last)
            } else {
                L::load_part(at, lead..last)
            };
            at = at.wrapping_add(L::BYTES);
            left -= last;
        }
        while left >= 8 * L::BYTES {
            for (i, sum) in sums.iter_mut().enumerate() {
                let first = L::load(at.wrapping_add(i * L::BYTES));
                let second = L::load(at.wrapping_add((i + 4) * L::BYTES));
                *sum = sum.xor3(first, second);
            }
            at = at.wrapping_add(8 * L::BYTES);
            left -= 8 * L::BYTES;
        }
        // What is left is taken by halves: a loop would cost a region of 1 KiB a third of its time.
        if left >= 4 * L::BYTES {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = sum.xor(L::load(at.wrapping_add(i * L::BYTES)));
            }
            at = at.wrapping_add(4 * L::BYTES);
            left -= 4 * L::BYTES;
        }
        if left >= 2 * L::BYTES {
            sums[1] = sums[1].xor3(L::load(at), L::load(at.wrapping_add(L::BYTES)));
            at = at.wrapping_add(2 * L::BYTES);
            left -= 2 * L::BYTES;
        }
        if left >= L::BYTES {
            sums[2] = sums[2].xor(L::load(at));
            at = at.wrapping_add(L::BYTES);
            left -= L::BYTES;
        }
        if left > 0 {
            sums[3] = sums[3].xor(if data.len() - end >= L::BYTES - left {
                L::load_within(at, 0..left)
            } else {
                L::load_part(at, 0..left)
            });
        }
        sums[0].xor3(sums[1], sums[2]).xor(sums[3])
    }
}

/// Both values of each part of `data`, of which there is one for each of `out`; `first` is the
/// global index of the first word of `data`.
///
/// # Safety
/// The instruction set of `L` is available.
#[inline(always)]
pub(super) unsafe fn both_parts<L: Lanes>(
    data: &[u8],
    first: u64,
    parts: Cuts,
    out: &mut [Values],
) {
    assert_eq!(parts.len(), out.len());
    let (mut xors, mut mixes) = (unset::<L, MAX_REGIONS>(), unset::<L, MAX_REGIONS>());
    let sums = xors.iter_mut().zip(&mut mixes);
    let asked = ahead::is_asked_for();
    for (part, (xor_sum, mix_sum)) in parts.zip(sums) {
        let index = first + part.start as u64 / 4;
        // SAFETY: forwarded from this function's caller.
        let (xor, mix) = unsafe { sum_both(&data[part], index, asked) };
        xor_sum.write(xor);
        mix_sum.write(mix);
    }
    let mut words = [0; MAX_REGIONS];
    let words = &mut words[..out.len()];
    // SAFETY: as above; there is a sum for each part.
    unsafe { L::fold_all(written(&xors, words.len()), words) };
    out.iter_mut()
        .zip(&*words)
        .for_each(|(out, word)| out.xor = *word);
    // SAFETY: as above.
    unsafe { L::fold_all(written(&mixes, words.len()), words) };
    out.iter_mut()
        .zip(&*words)
        .for_each(|(out, word)| out.mix = *word);
}

/// XOR and mixed XOR of the words of `data`, lane by lane; `index` is that of the first word, and
/// `asked` says whether memory is asked for ahead.
///
/// # Safety
/// The instruction set of `L` is available.
#[inline(always)]
unsafe fn sum_both<L: Lanes>(data: &[u8], index: u64, asked: bool) -> (L, L) {
    // SAFETY: forwarded; loads stay in `data`.
    unsafe {
        let (mut xor, mut mix) = (L::zero(), L::zero());
        for (piece, key) in kernel::keyed_pieces(data, index) {
            let streamed = match asked && piece.len() >= STREAMED {
                true => piece.len() / (STREAMS * LINE) * (STREAMS * LINE),
                false => 0,
            };
            let (streams, piece) = piece.split_at(streamed);
            if streamed > 0 {
                let (xor_sum, mix_sum) = sum_streams::<L>(streams, key);
                xor = xor.xor(xor_sum);
                mix = mix.xor(mix_sum);
            }
            let mut mixer = Mixer::<L>::new(kernel::key_after(key, streamed / 4));
            let mut at = piece.as_ptr();
            let mut left = piece.len();
            while left >= 4 * L::BYTES {
                // No closures here: they would not be compiled for the instruction set.
                let a = L::load(at);
                let b = L::load(at.wrapping_add(L::BYTES));
                let c = L::load(at.wrapping_add(2 * L::BYTES));
                let d = L::load(at.wrapping_add(3 * L::BYTES));
                xor = xor.xor3(a, b).xor3(c, d);
                mix = mix.xor3(mixer.next(a), mixer.next(b));
                mix = mix.xor3(mixer.next(c), mixer.next(d));
                at = at.wrapping_add(4 * L::BYTES);
                left -= 4 * L::BYTES;
            }
            while left >= L::BYTES {
                let word = L::load(at);
                xor = xor.xor(word);
                mix = mix.xor(mixer.next(word));
                at = at.wrapping_add(L::BYTES);
                left -= L::BYTES;
            }
            if left > 0 {
                let word = L::load_part(at, 0..left);
                xor = xor.xor(word);
                mix = mix.xor(mixer.next(word).first_words(left.div_ceil(4)));
            }
        }
        (xor, mix)
    }
}

/// As [`sum_both`] for whole lines, the same number for each stream; `key` is that of the first word.
///
/// # Safety
/// The instruction set of `L` is available.
#[inline(always)]
unsafe fn sum_streams<L: Lanes>(data: &[u8], key: u32) -> (L, L) {
    let length = data.len() / STREAMS;
    // SAFETY: forwarded; loads stay in `data`.
    unsafe {
        let (mut xor, mut mix) = (L::zero(), L::zero());
        let mut mixers = [Mixer::<L>::new(key); STREAMS];
        for (stream, mixer) in mixers.iter_mut().enumerate() {
            *mixer = Mixer::new(kernel::key_after(key, stream * length / 4));
        }
        let mut at = data.as_ptr();
        let end = at.add(length);
        while at < end {
            for stream in 0..STREAMS {
                let at = at.wrapping_add(stream * length);
                L::prefetch_far(at.wrapping_add(AHEAD));
                L::prefetch(at.wrapping_add(SHORTLY_AHEAD));
            }
            for _ in 0..LINE / L::BYTES {
                let a = L::load(at);
                let b = L::load(at.wrapping_add(length));
                let c = L::load(at.wrapping_add(2 * length));
                let d = L::load(at.wrapping_add(3 * length));
                xor = xor.xor3(a, b).xor3(c, d);
                mix = mix.xor3(mixers[0].next(a), mixers[1].next(b));
                mix = mix.xor3(mixers[2].next(c), mixers[3].next(d));
                at = at.wrapping_add(L::BYTES);
            }
        }
        (xor, mix)
    }
}

/// The mixer over registers of words.
#[derive(Clone, Copy)]
pub(super) struct Mixer<L> {
    keys: L,
    step: L,
    first: L,
    second: L,
}

impl<L: Lanes> Mixer<L> {
    /// For consecutive words, the first of which has key `key`.
    #[inline(always)]
    pub(super) unsafe fn new(key: u32) -> Self {
        let step = GOLDEN.wrapping_mul(L::BYTES as u32 / 4);
        // SAFETY: forwarded from this function's caller.
        unsafe { Self::with_keys(L::ramp(key, GOLDEN), step) }
    }

    /// For words with keys that go up by `step` from register to register.
    #[inline(always)]
    pub(super) unsafe fn with_keys(keys: L, step: u32) -> Self {
        // SAFETY: forwarded from this function's caller.
        unsafe {
            Self {
                keys,
                step: L::splat(step),
                first: L::splat(FIRST),
                second: L::splat(SECOND),
            }
        }
    }

    /// `words` mixed; see [`kernel::mix`].
    #[inline(always)]
    pub(super) unsafe fn next(&mut self, words: L) -> L {
        // SAFETY: forwarded from this function's caller.
        unsafe {
            let x = words.xor(self.keys);
            let x = x.xor(x.shift_right_15()).mul(self.first);
            let x = x.xor(x.shift_right_15()).mul(self.second);
            let mixed = x.xor(x.shift_right_15()).add(self.keys);
            self.keys = self.keys.add(self.step);
            mixed
        }
    }
}

/// Registers, without clearing those that are not used.
#[inline(always)]
pub(super) fn unset<L: Copy, const N: usize>() -> [MaybeUninit<L>; N] {
    [const { MaybeUninit::uninit() }; N]
}

/// The first `count` registers.
///
/// # Safety
/// They have been written.
#[inline(always)]
pub(super) unsafe fn written<L>(sums: &[MaybeUninit<L>], count: usize) -> &[L] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(sums[..count].as_ptr().cast(), count) }
}
