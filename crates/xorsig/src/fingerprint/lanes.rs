//! What the dense walk needs of a vector register; one implementation per instruction set.

use std::ops::Range;

/// A vector register, seen as bytes or as little-endian words.
///
/// # Safety
/// Every method may be called only where the type's instruction set is available, and pointers
/// must be readable (or writable) over the bytes that the method names.
pub(super) trait Lanes: Copy {
    /// Size in bytes, a power of two.
    const BYTES: usize;

    /// All bits 0.
    unsafe fn zero() -> Self;
    /// `word` in every lane.
    unsafe fn splat(word: u32) -> Self;
    /// `first`, `first + step`, `first + 2 * step`, ….
    unsafe fn ramp(first: u32, step: u32) -> Self;
    /// The `BYTES` bytes at `pointer`, of any alignment.
    unsafe fn load(pointer: *const u8) -> Self;
    /// The bytes `range` of the vector at `pointer`, the others 0. Only `range` is read.
    unsafe fn load_part(pointer: *const u8, range: Range<usize>) -> Self;
    /// Asks for the cache line at `pointer`, which need not be readable.
    unsafe fn prefetch(pointer: *const u8);
    /// As [`Self::prefetch`], into the second-level cache only.
    unsafe fn prefetch_far(pointer: *const u8);
    /// As many 16-bit numbers as there are lanes, each in the low half of its lane.
    unsafe fn load_halves(pointer: *const u8) -> Self;
    /// As many bytes as there are lanes, each in the lowest byte of its lane.
    unsafe fn load_bytes(pointer: *const u8) -> Self;
    /// [`Self::load_part`] where the whole vector is readable.
    unsafe fn load_within(pointer: *const u8, range: Range<usize>) -> Self;
    /// Writes the `BYTES` bytes at `pointer`, of any alignment.
    unsafe fn store(self, pointer: *mut u8);
    /// The first `count` lanes, the others 0.
    unsafe fn first_words(self, count: usize) -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    /// XOR of three; one instruction where there is one.
    #[inline(always)]
    unsafe fn xor3(self, second: Self, third: Self) -> Self {
        // SAFETY: forwarded from this method's caller.
        unsafe { self.xor(second).xor(third) }
    }
    /// Sum of each lane, modulo 2^32.
    unsafe fn add(self, other: Self) -> Self;
    /// Product of each lane, modulo 2^32.
    unsafe fn mul(self, other: Self) -> Self;
    /// Each lane shifted right by the mixer's 15 bits.
    unsafe fn shift_right_15(self) -> Self;
    /// Each lane shifted left by 8 bits.
    unsafe fn shift_left_8(self) -> Self;
    /// Each lane shifted left by 16 bits.
    unsafe fn shift_left_16(self) -> Self;
    /// XOR of all lanes.
    unsafe fn fold(self) -> u32;
    /// [`Self::fold`] of each of `sums`.
    #[inline(always)]
    unsafe fn fold_all(sums: &[Self], out: &mut [u32]) {
        for (sum, out) in sums.iter().zip(out) {
            // SAFETY: forwarded from this method's caller.
            *out = unsafe { sum.fold() };
        }
    }
}

/// The bytes `range` at `pointer` in a buffer of zeros, for registers without masked loads.
///
/// # Safety
/// The bytes `range` from `pointer` are readable.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline]
pub(super) unsafe fn part_of<const N: usize>(pointer: *const u8, range: Range<usize>) -> [u8; N] {
    let mut buffer = [0; N];
    let source = pointer.wrapping_add(range.start);
    let target = &mut buffer[range];
    // SAFETY: the caller's promise; the buffer is another object.
    unsafe { std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len()) };
    buffer
}
