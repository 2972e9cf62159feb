//! 512-bit registers.

use std::arch::x86_64::*;
use std::ops::Range;

use super::lanes::Lanes;

/// A 512-bit register; needs AVX-512 F, BW and VL.
#[derive(Clone, Copy)]
pub(super) struct Zmm(__m512i);

/// Bits `range` of 64.
#[inline(always)]
fn bits(range: Range<usize>) -> u64 {
    (u64::MAX << range.start) & (u64::MAX >> (64 - range.end))
}

// SAFETY of every block below: the trait's methods are called only where the instruction set is
// available, with pointers that are valid for the bytes that are named. A masked load does not
// touch the bytes that its mask leaves out.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Lanes for Zmm {
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn zero() -> Self {
        unsafe { Self(_mm512_setzero_si512()) }
    }

    #[inline(always)]
    unsafe fn splat(word: u32) -> Self {
        unsafe { Self(_mm512_set1_epi32(word as i32)) }
    }

    #[inline(always)]
    unsafe fn ramp(first: u32, step: u32) -> Self {
        unsafe {
            let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            Self(lanes).mul(Self::splat(step)).add(Self::splat(first))
        }
    }

    #[inline(always)]
    unsafe fn load(pointer: *const u8) -> Self {
        unsafe { Self(_mm512_loadu_si512(pointer.cast())) }
    }

    #[inline(always)]
    unsafe fn load_part(pointer: *const u8, range: Range<usize>) -> Self {
        // The shifts of an empty range at 0 would overflow.
        let mask = if range.is_empty() { 0 } else { bits(range) };
        unsafe { Self(_mm512_maskz_loadu_epi8(mask, pointer.cast())) }
    }

    #[inline(always)]
    unsafe fn load_halves(pointer: *const u8) -> Self {
        unsafe { Self(_mm512_cvtepu16_epi32(_mm256_loadu_si256(pointer.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_bytes(pointer: *const u8) -> Self {
        unsafe { Self(_mm512_cvtepu8_epi32(_mm_loadu_si128(pointer.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_within(pointer: *const u8, range: Range<usize>) -> Self {
        unsafe { Self::load_part(pointer, range) }
    }

    #[inline(always)]
    unsafe fn prefetch(pointer: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(pointer.cast()) }
    }

    #[inline(always)]
    unsafe fn prefetch_far(pointer: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(pointer.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, pointer: *mut u8) {
        unsafe { _mm512_storeu_si512(pointer.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn first_words(self, count: usize) -> Self {
        let mask = ((1u32 << count) - 1) as u16;
        unsafe { Self(_mm512_maskz_mov_epi32(mask, self.0)) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        unsafe { Self(_mm512_xor_si512(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn xor3(self, second: Self, third: Self) -> Self {
        unsafe { Self(_mm512_ternarylogic_epi32::<0x96>(self.0, second.0, third.0)) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        unsafe { Self(_mm512_add_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        unsafe { Self(_mm512_mullo_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn shift_right_15(self) -> Self {
        unsafe { Self(_mm512_srli_epi32::<15>(self.0)) }
    }

    #[inline(always)]
    unsafe fn shift_left_8(self) -> Self {
        unsafe { Self(_mm512_slli_epi32::<8>(self.0)) }
    }

    #[inline(always)]
    unsafe fn shift_left_16(self) -> Self {
        unsafe { Self(_mm512_slli_epi32::<16>(self.0)) }
    }

    #[inline(always)]
    unsafe fn fold(self) -> u32 {
        unsafe {
            let high = _mm512_extracti64x4_epi64::<1>(self.0);
            let half = _mm256_xor_si256(_mm512_castsi512_si256(self.0), high);
            let high = _mm256_extracti128_si256::<1>(half);
            let quarter = _mm_xor_si128(_mm256_castsi256_si128(half), high);
            let swapped = _mm_shuffle_epi32::<0b01_00_11_10>(quarter);
            let pair = _mm_cvtsi128_si64(_mm_xor_si128(quarter, swapped)) as u64;
            pair as u32 ^ (pair >> 32) as u32
        }
    }

    #[inline(always)]
    unsafe fn fold_all(sums: &[Self], out: &mut [u32]) {
        let (groups, rest) = sums.as_chunks::<16>();
        let (outs, rest_out) = out.as_chunks_mut::<16>();
        unsafe {
            for (group, out) in groups.iter().zip(outs) {
                fold_16(group).store(out.as_mut_ptr().cast());
            }
            for (sum, out) in rest.iter().zip(rest_out) {
                *out = sum.fold();
            }
        }
    }
}

/// Folds 16 registers at once into the lanes of one.
///
/// Four levels halve the number of registers: each joins two by exchanging their halves (of 512,
/// 256, 128, then 64 bits), so that one XOR adds the halves of both. A blend and a shuffle a pair
/// cost half the port that folding each register on its own would keep busy.
#[inline(always)]
unsafe fn fold_16(sums: &[Zmm; 16]) -> Zmm {
    // SAFETY: as for the trait's methods.
    unsafe {
        let mut eighths = [Zmm::zero(); 8];
        for (i, joined) in eighths.iter_mut().enumerate() {
            let (a, b) = (sums[i].0, sums[i + 8].0);
            let kept = _mm512_mask_blend_epi64(0xF0, a, b);
            let crossed = _mm512_shuffle_i64x2::<0b01_00_11_10>(a, b);
            *joined = Zmm(_mm512_xor_si512(kept, crossed));
        }
        let lanes = _mm512_setr_epi64(2, 3, 8, 9, 6, 7, 12, 13);
        let mut fourths = [Zmm::zero(); 4];
        for (i, joined) in fourths.iter_mut().enumerate() {
            let (a, b) = (eighths[i].0, eighths[i + 4].0);
            let kept = _mm512_mask_blend_epi64(0xCC, a, b);
            let crossed = _mm512_permutex2var_epi64(a, lanes, b);
            *joined = Zmm(_mm512_xor_si512(kept, crossed));
        }
        let mut halves = [Zmm::zero(); 2];
        for (i, joined) in halves.iter_mut().enumerate() {
            let (a, b) = (fourths[i].0, fourths[i + 2].0);
            let kept = _mm512_mask_blend_epi64(0xAA, a, b);
            let crossed = _mm512_alignr_epi8::<8>(b, a);
            *joined = Zmm(_mm512_xor_si512(kept, crossed));
        }
        let lanes = _mm512_setr_epi32(1, 16, 3, 18, 5, 20, 7, 22, 9, 24, 11, 26, 13, 28, 15, 30);
        let kept = _mm512_mask_blend_epi32(0xAAAA, halves[0].0, halves[1].0);
        let crossed = _mm512_permutex2var_epi32(halves[0].0, lanes, halves[1].0);
        Zmm(_mm512_xor_si512(kept, crossed))
    }
}
