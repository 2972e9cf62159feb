//! 128-bit registers of aarch64.

use std::arch::aarch64::*;
use std::ops::Range;

use super::lanes::{Lanes, part_of};

/// A 128-bit register; NEON is part of every aarch64 target.
#[derive(Clone, Copy)]
pub(super) struct Neon(uint32x4_t);

// SAFETY of every block below: NEON is always available on aarch64, and the pointers are valid
// for the bytes that are named.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Lanes for Neon {
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        unsafe { Self::splat(0) }
    }

    #[inline(always)]
    unsafe fn splat(word: u32) -> Self {
        unsafe { Self(vdupq_n_u32(word)) }
    }

    #[inline(always)]
    unsafe fn ramp(first: u32, step: u32) -> Self {
        unsafe {
            let lanes = Self(vld1q_u32([0, 1, 2, 3].as_ptr()));
            lanes.mul(Self::splat(step)).add(Self::splat(first))
        }
    }

    #[inline(always)]
    unsafe fn load(pointer: *const u8) -> Self {
        unsafe { Self(vreinterpretq_u32_u8(vld1q_u8(pointer))) }
    }

    #[inline(always)]
    unsafe fn load_part(pointer: *const u8, range: Range<usize>) -> Self {
        unsafe { Self::load(part_of::<16>(pointer, range).as_ptr()) }
    }

    #[inline(always)]
    unsafe fn load_halves(pointer: *const u8) -> Self {
        unsafe { Self(vmovl_u16(vreinterpret_u16_u8(vld1_u8(pointer)))) }
    }

    #[inline(always)]
    unsafe fn load_bytes(pointer: *const u8) -> Self {
        unsafe {
            let bytes = pointer.cast::<u32>().read_unaligned();
            let bytes = vreinterpret_u8_u32(vdup_n_u32(bytes));
            Self(vmovl_u16(vget_low_u16(vmovl_u8(bytes))))
        }
    }

    #[inline(always)]
    unsafe fn load_within(pointer: *const u8, range: Range<usize>) -> Self {
        const INDEX: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        unsafe {
            let index = vld1q_u8(INDEX.as_ptr());
            let before = vcltq_u8(index, vdupq_n_u8(range.end as u8));
            let from = vcgeq_u8(index, vdupq_n_u8(range.start as u8));
            let kept = vreinterpretq_u32_u8(vandq_u8(before, from));
            Self(vandq_u32(kept, Self::load(pointer).0))
        }
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {
        // The intrinsic is unstable; the processor's own prefetching has to do.
    }

    #[inline(always)]
    unsafe fn prefetch_far(_: *const u8) {
        // As above.
    }

    #[inline(always)]
    unsafe fn store(self, pointer: *mut u8) {
        unsafe { vst1q_u8(pointer, vreinterpretq_u8_u32(self.0)) }
    }

    #[inline(always)]
    unsafe fn first_words(self, count: usize) -> Self {
        unsafe {
            let lanes = vld1q_u32([0, 1, 2, 3].as_ptr());
            Self(vandq_u32(
                vcltq_u32(lanes, vdupq_n_u32(count as u32)),
                self.0,
            ))
        }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        unsafe { Self(veorq_u32(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        unsafe { Self(vaddq_u32(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        unsafe { Self(vmulq_u32(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn shift_right_15(self) -> Self {
        unsafe { Self(vshrq_n_u32::<15>(self.0)) }
    }

    #[inline(always)]
    unsafe fn shift_left_8(self) -> Self {
        unsafe { Self(vshlq_n_u32::<8>(self.0)) }
    }

    #[inline(always)]
    unsafe fn shift_left_16(self) -> Self {
        unsafe { Self(vshlq_n_u32::<16>(self.0)) }
    }

    #[inline(always)]
    unsafe fn fold(self) -> u32 {
        unsafe {
            let half = veor_u32(vget_low_u32(self.0), vget_high_u32(self.0));
            vget_lane_u32::<0>(half) ^ vget_lane_u32::<1>(half)
        }
    }
}
