//! Tensors that are not dense, against a copy in logical order.

use proptest::prelude::*;

use super::{pattern, reference};
use crate::fingerprint::layout::{Layout, LayoutError};
use crate::fingerprint::level::Level;
use crate::fingerprint::strided;

#[test]
fn layouts_that_cannot_be_walked_are_refused() {
    let huge = 1usize << 62;
    assert_eq!(Layout::new(&[2], &[], 4), Err(LayoutError::Rank));
    assert_eq!(Layout::new(&[2], &[1], 0), Err(LayoutError::ItemSize));
    assert_eq!(Layout::new(&[2], &[1], 1025), Err(LayoutError::ItemSize));
    assert_eq!(
        Layout::new(&[huge, 4], &[1, 1], 4),
        Err(LayoutError::TooLarge)
    );
    assert_eq!(
        Layout::new(&[2, 2], &[isize::MAX, 1], 4),
        Err(LayoutError::TooLarge)
    );
    let layout = Layout::new(&[2], &[1], 4).unwrap();
    // SAFETY: nothing is read through a null address, nor with regions out of range.
    let (null, regions) = unsafe {
        let read =
            |regions| strided::fingerprint(std::ptr::null(), &layout, regions, Level::Portable, 1);
        (read(4).err(), read(65).err())
    };
    assert_eq!(
        (null, regions),
        (Some(LayoutError::NullAddress), Some(LayoutError::Regions))
    );
}

/// The bytes of a strided tensor in logical order, gathered one element at a time.
pub(super) fn contiguous(
    base: &[u8],
    start: usize,
    shape: &[usize],
    strides: &[isize],
    size: usize,
) -> Vec<u8> {
    let mut out = Vec::new();
    for flat in 0..shape.iter().product::<usize>() {
        let (mut rest, mut at) = (flat, start as isize);
        for (len, stride) in shape.iter().zip(strides).rev() {
            at += (rest % len) as isize * stride * size as isize;
            rest /= len;
        }
        out.extend_from_slice(&base[at as usize..at as usize + size]);
    }
    out
}

/// A tensor view: shape, strides in elements, element size, and elements it spans before and
/// from its first one.
#[derive(Clone, Debug)]
struct View {
    shape: Vec<usize>,
    strides: Vec<isize>,
    itemsize: usize,
    before: usize,
    span: usize,
}

fn views() -> impl Strategy<Value = View> {
    let dims = prop::collection::vec((1usize..40, 0usize..4, any::<bool>()), 0..4);
    let sizes = prop::sample::select(vec![1usize, 2, 3, 4, 8, 16]);
    (dims, sizes, any::<prop::sample::Index>()).prop_map(|(dims, itemsize, order)| {
        // Dense strides of a permutation of the dimensions, then gaps, expansion and reversal.
        let mut permuted: Vec<usize> = (0..dims.len()).collect();
        permuted.rotate_left(if dims.is_empty() {
            0
        } else {
            order.index(dims.len())
        });
        let mut strides = vec![0isize; dims.len()];
        let mut step = 1isize;
        let (mut before, mut span) = (0, 1);
        for d in permuted {
            let (len, gap, reversed) = dims[d];
            // A gap of 0 leaves the dimension dense, 3 repeats one element.
            strides[d] = if gap == 3 { 0 } else { step };
            let reach = strides[d].unsigned_abs() * (len - 1);
            if reversed && gap == 2 {
                strides[d] = -strides[d];
                before += reach;
            } else {
                span += reach;
            }
            step *= len as isize + gap as isize % 3;
        }
        let shape = dims.iter().map(|(len, _, _)| *len).collect();
        View {
            shape,
            strides,
            itemsize,
            before,
            span,
        }
    })
}

proptest! {
    #[test]
    fn strided_walks_equal_the_contiguous_copy(view in views(), regions in 1usize..=8) {
        let View { shape, strides, itemsize, before, span } = view;
        let base = pattern((before + span) * itemsize);
        let start = before * itemsize;
        let expected = reference(&contiguous(&base, start, &shape, &strides, itemsize), regions);
        let layout = Layout::new(&shape, &strides, itemsize).unwrap();
        for level in Level::available() {
            // SAFETY: `before` and `span` elements of `base` cover every element of the view.
            let found = unsafe {
                strided::fingerprint(base[start..].as_ptr(), &layout, regions, level, 1).unwrap()
            };
            prop_assert_eq!(found.values(), &expected[..]);
        }
    }
}

#[test]
fn transposes_and_slices_equal_their_copies_at_every_level() {
    // Rows and columns beyond what any level reads together, with ragged ends; widths that are
    // no whole words for 1- and 2-byte elements take another walk.
    let (rows, columns) = if cfg!(miri) { (67, 76) } else { (133, 1036) };
    for itemsize in [1, 2, 4, 8, 16, 12] {
        let base = pattern(rows * columns * itemsize + 1);
        let cases: [([usize; 3], [isize; 3]); 7] = [
            ([1, columns, rows], [1, 1, columns as isize]),
            ([1, columns, rows - 1], [1, 1, columns as isize]),
            ([1, columns - 3, 12], [1, 1, columns as isize]),
            ([1, 18, rows - 1], [1, 1, columns as isize]),
            ([1, rows, columns / 2], [1, columns as isize, 2]),
            ([1, rows, columns - 7], [1, columns as isize, 1]),
            // As channels in the last dimension of memory: 2 images of 4 by 7, 66 channels.
            ([2, 66, 4 * 7], [66 * 4 * 7, 1, 66]),
        ];
        for (shape, strides) in cases {
            for (start, regions) in [(0, 1), (1, 4), (1, 64)] {
                let bytes = contiguous(&base[start..], 0, &shape, &strides, itemsize);
                let expected = reference(&bytes, regions);
                let layout = Layout::new(&shape, &strides, itemsize).unwrap();
                for level in Level::available() {
                    // SAFETY: each case is a view of elements of `base`.
                    let found = unsafe {
                        let address = base[start..].as_ptr();
                        strided::fingerprint(address, &layout, regions, level, 1).unwrap()
                    };
                    let context = (level.name(), itemsize, shape, regions);
                    assert_eq!(found.values(), expected, "{context:?}");
                }
            }
        }
    }
}
