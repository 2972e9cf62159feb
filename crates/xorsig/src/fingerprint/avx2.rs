//! 256-bit registers.

use std::arch::x86_64::*;
use std::ops::Range;

use super::lanes::{Lanes, part_of};

/// A 256-bit register; needs AVX2.
#[derive(Clone, Copy)]
pub(super) struct Ymm(__m256i);

// SAFETY of every block below: the trait's methods are called only where the instruction set is
// available, with pointers that are valid for the bytes that are named.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Lanes for Ymm {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn zero() -> Self {
        unsafe { Self(_mm256_setzero_si256()) }
    }

    #[inline(always)]
    unsafe fn splat(word: u32) -> Self {
        unsafe { Self(_mm256_set1_epi32(word as i32)) }
    }

    #[inline(always)]
    unsafe fn ramp(first: u32, step: u32) -> Self {
        unsafe {
            let lanes = Self(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
            lanes.mul(Self::splat(step)).add(Self::splat(first))
        }
    }

    #[inline(always)]
    unsafe fn load(pointer: *const u8) -> Self {
        unsafe { Self(_mm256_loadu_si256(pointer.cast())) }
    }

    #[inline(always)]
    unsafe fn load_part(pointer: *const u8, range: Range<usize>) -> Self {
        unsafe { Self::load(part_of::<32>(pointer, range).as_ptr()) }
    }

    #[inline(always)]
    unsafe fn load_halves(pointer: *const u8) -> Self {
        unsafe { Self(_mm256_cvtepu16_epi32(_mm_loadu_si128(pointer.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_bytes(pointer: *const u8) -> Self {
        unsafe { Self(_mm256_cvtepu8_epi32(_mm_loadl_epi64(pointer.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_within(pointer: *const u8, range: Range<usize>) -> Self {
        unsafe {
            let index = _mm256_setr_epi8(
                0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
                23, 24, 25, 26, 27, 28, 29, 30, 31,
            );
            let before = _mm256_cmpgt_epi8(_mm256_set1_epi8(range.end as i8), index);
            let from = _mm256_cmpgt_epi8(index, _mm256_set1_epi8(range.start as i8 - 1));
            let kept = _mm256_and_si256(before, from);
            Self(_mm256_and_si256(kept, Self::load(pointer).0))
        }
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
        unsafe { _mm256_storeu_si256(pointer.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn first_words(self, count: usize) -> Self {
        unsafe {
            let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let kept = _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), lanes);
            Self(_mm256_and_si256(kept, self.0))
        }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        unsafe { Self(_mm256_xor_si256(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        unsafe { Self(_mm256_add_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        unsafe { Self(_mm256_mullo_epi32(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn shift_right_15(self) -> Self {
        unsafe { Self(_mm256_srli_epi32::<15>(self.0)) }
    }

    #[inline(always)]
    unsafe fn shift_left_8(self) -> Self {
        unsafe { Self(_mm256_slli_epi32::<8>(self.0)) }
    }

    #[inline(always)]
    unsafe fn shift_left_16(self) -> Self {
        unsafe { Self(_mm256_slli_epi32::<16>(self.0)) }
    }

    #[inline(always)]
    unsafe fn fold(self) -> u32 {
        unsafe {
            let high = _mm256_extracti128_si256::<1>(self.0);
            let half = _mm_xor_si128(_mm256_castsi256_si128(self.0), high);
            let swapped = _mm_shuffle_epi32::<0b01_00_11_10>(half);
            let pair = _mm_cvtsi128_si64(_mm_xor_si128(half, swapped)) as u64;
            pair as u32 ^ (pair >> 32) as u32
        }
    }
}
