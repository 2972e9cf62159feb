//! Copies of elements that do not lie side by side into a small dense buffer.

/// Copies elements that lie `step` bytes apart into `target`.
///
/// # Safety
/// `target.len() / itemsize` elements from `pointer` are readable.
pub(super) unsafe fn gather(pointer: *const u8, step: isize, itemsize: usize, target: &mut [u8]) {
    /// [`gather`] for a size that the compiler knows.
    ///
    /// # Safety
    /// As for [`gather`].
    unsafe fn sized<const N: usize>(pointer: *const u8, step: isize, target: &mut [u8]) {
        for (i, item) in target.as_chunks_mut::<N>().0.iter_mut().enumerate() {
            let source = pointer.wrapping_offset(step * i as isize);
            // SAFETY: element `i` is readable; byte arrays have no alignment.
            *item = unsafe { source.cast::<[u8; N]>().read() };
        }
    }
    if step == itemsize as isize {
        // SAFETY: the elements lie side by side, and `target` is a buffer of its own.
        unsafe { std::ptr::copy_nonoverlapping(pointer, target.as_mut_ptr(), target.len()) };
        return;
    }
    // SAFETY: forwarded from this function's caller.
    unsafe {
        match itemsize {
            1 => sized::<1>(pointer, step, target),
            2 => sized::<2>(pointer, step, target),
            4 => sized::<4>(pointer, step, target),
            8 => sized::<8>(pointer, step, target),
            16 => sized::<16>(pointer, step, target),
            _ => {
                for (i, item) in target.chunks_exact_mut(itemsize).enumerate() {
                    let source = pointer.wrapping_offset(step * i as isize);
                    std::ptr::copy_nonoverlapping(source, item.as_mut_ptr(), itemsize);
                }
            }
        }
    }
}
