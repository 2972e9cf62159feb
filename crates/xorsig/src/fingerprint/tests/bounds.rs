//! Reads stay inside the tensor, shown by pages that cannot be read.

use super::strided::contiguous;
use super::{SIZES, pattern, reference};
use crate::fingerprint::layout::Layout;
use crate::fingerprint::level::Level;
use crate::fingerprint::{Fingerprint, region_xor_into, strided};

/// Memory between two pages that cannot be read.
struct Guarded {
    base: *mut libc::c_void,
}

impl Guarded {
    const PAGE: usize = 4096;
    const USABLE: usize = 2 * Self::PAGE;

    fn new() -> Self {
        let size = Self::USABLE + 2 * Self::PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, of which the middle is then made usable and filled.
        unsafe {
            let base = libc::mmap(std::ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            let middle = base.cast::<u8>().add(Self::PAGE);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(middle.cast(), Self::USABLE, access), 0);
            for (i, byte) in pattern(Self::USABLE).into_iter().enumerate() {
                middle.add(i).write(byte);
            }
            Self { base }
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the usable middle, mapped while `self` lives.
        unsafe { std::slice::from_raw_parts(self.base.cast::<u8>().add(Self::PAGE), Self::USABLE) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`.
        unsafe { libc::munmap(self.base, Self::USABLE + 2 * Self::PAGE) };
    }
}

#[test]
#[cfg_attr(miri, ignore = "no page protection there")]
fn nothing_outside_the_tensor_is_read() {
    let guarded = Guarded::new();
    let all = guarded.bytes();
    for size in SIZES.into_iter().filter(|&size| size <= all.len()) {
        for regions in [1, 4, 64] {
            for data in [&all[..size], &all[all.len() - size..]] {
                let expected = reference(data, regions);
                for level in Level::available() {
                    let mut both = Fingerprint::new(size as u64, regions, level).unwrap();
                    both.add(0, data);
                    assert_eq!(both.values(), expected);
                    let mut xors = vec![0; regions];
                    region_xor_into(level, data, &mut xors, 1);
                    assert!(
                        expected
                            .iter()
                            .zip(&xors)
                            .all(|(both, xor)| both.xor == *xor)
                    );
                }
            }
        }
    }
    // Columns that end at the last byte, and begin at the first.
    for (itemsize, rows, columns) in [(1, 64, 128), (2, 64, 64), (4, 64, 32), (8, 8, 128)] {
        let layout = Layout::new(&[rows, columns], &[1, rows as isize], itemsize).unwrap();
        let bytes = contiguous(all, 0, &[rows, columns], &[1, rows as isize], itemsize);
        for level in Level::available() {
            // SAFETY: the view covers the usable memory and nothing else.
            let found =
                unsafe { strided::fingerprint(all.as_ptr(), &layout, 4, level, 1).unwrap() };
            assert_eq!(
                found.values(),
                reference(&bytes, 4),
                "{} {itemsize}",
                level.name()
            );
        }
    }
}
