//! Every level against a reference that is written to be read, not to be fast.

use proptest::prelude::*;

use super::kernel::{self, Values};
use super::layout::{Layout, LayoutError};
use super::level::Level;
use super::regions::Regions;
use super::strided;
use super::*;

/// Word lengths around what the kernel handles together (16 words), and around 4 KiB.
const LENGTHS: [usize; 24] = [
    0, 1, 2, 3, 4, 5, 7, 8, 9, 60, 63, 64, 65, 67, 127, 128, 129, 191, 193, 1023, 1024, 1025, 4095,
    4099,
];

fn pattern(length: usize) -> Vec<u8> {
    // 251 is prime, so that a moved block changes the answer.
    (0..length).map(|i| ((i * 57 + 145) % 251) as u8).collect()
}

fn words(data: &[u8]) -> Vec<u32> {
    let padded = data.chunks(4).map(|chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        u32::from_le_bytes(word)
    });
    padded.collect()
}

/// The specification, step by step.
fn reference(data: &[u8], regions: usize) -> Vec<Values> {
    let words = words(data);
    let (short, long) = (words.len() / regions, words.len() % regions);
    let mut index = 0;
    let mut values = Vec::new();
    for region in 0..regions {
        let mut value = Values::default();
        for _ in 0..short + usize::from(region < long) {
            value.xor ^= words[index];
            value.mix ^= mix(words[index], index as u64);
            index += 1;
        }
        values.push(value);
    }
    values
}

fn vectors() -> serde_json::Value {
    serde_json::from_str(include_str!("../../vectors/fingerprint.json")).unwrap()
}

fn numbers(value: &serde_json::Value) -> Vec<u64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_u64().unwrap())
        .collect()
}

#[test]
fn vectors_hold_for_both_schemes() {
    for vector in vectors()["vectors"].as_array().unwrap() {
        let field = |name: &str| vector[name].as_u64().unwrap() as usize;
        let (mul, add) = (field("mul"), field("add"));
        let data: Vec<u8> = (0..field("nbytes"))
            .map(|i| ((i * mul + add) % 251) as u8)
            .collect();
        let regions = field("regions");
        let widen = |values: Vec<u32>| values.into_iter().map(u64::from).collect::<Vec<_>>();
        assert_eq!(
            widen(region_xor(&data, regions).unwrap()),
            numbers(&vector["xor"])
        );
        assert_eq!(
            widen(region_mix(&data, regions).unwrap()),
            numbers(&vector["mix"])
        );
        let split = Regions::new(data.len() as u64, regions).unwrap();
        let ranges: Vec<_> = (0..regions).map(|r| split.byte_range(r)).collect();
        let expected: Vec<_> = vector["byte_ranges"]
            .as_array()
            .unwrap()
            .iter()
            .map(numbers)
            .collect();
        assert_eq!(
            ranges
                .iter()
                .map(|r| vec![r.start, r.end])
                .collect::<Vec<_>>(),
            expected
        );
    }
}

#[test]
fn mixer_vectors_hold_for_indices_beyond_32_bits() {
    for vector in vectors()["mix"].as_array().unwrap() {
        let word = vector["word"].as_u64().unwrap() as u32;
        let index = vector["index"].as_u64().unwrap();
        assert_eq!(
            u64::from(mix(word, index)),
            vector["mix"].as_u64().unwrap(),
            "{vector}"
        );
    }
}

#[test]
fn every_level_agrees_with_the_portable_kernel_at_every_offset() {
    let data = pattern(4099 + 64);
    for level in Level::available() {
        for length in LENGTHS {
            for offset in 0..64 {
                let slice = &data[offset..offset + length];
                assert_eq!(
                    level.xor(slice),
                    kernel::xor(slice),
                    "{level:?} {length} {offset}"
                );
                let first = 1 << 20;
                assert_eq!(
                    level.both(slice, first),
                    kernel::both(slice, first),
                    "{level:?}"
                );
            }
        }
    }
}

#[test]
fn every_level_agrees_with_the_reference() {
    for level in Level::available() {
        for length in LENGTHS {
            let data = pattern(length);
            for regions in [1, 2, 3, 4, 7, 16, 63, 64] {
                let mut fingerprint = Fingerprint::new(length as u64, regions, level).unwrap();
                fingerprint.add(0, &data);
                assert_eq!(
                    fingerprint.values(),
                    reference(&data, regions),
                    "{length} {regions}"
                );
            }
        }
    }
}

/// Bytes around what one level handles in one way: a register, eight registers, the sizes of small
/// tensors, and sizes that leave the last regions short, empty, or with a partial word.
const SIZES: [usize; 22] = [
    0, 1, 3, 4, 7, 63, 64, 65, 129, 255, 256, 260, 511, 513, 1021, 1024, 2047, 4095, 4096, 4097,
    8193, 16_389,
];

#[test]
fn every_level_and_alignment_gives_the_reference_values() {
    let buffer = pattern(SIZES[SIZES.len() - 1] + 64);
    for size in SIZES {
        for regions in [1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 32, 63, 64] {
            for offset in 0..64 {
                let data = &buffer[offset..offset + size];
                let expected = reference(data, regions);
                let xors: Vec<u32> = expected.iter().map(|values| values.xor).collect();
                for level in Level::available() {
                    let context = (level.name(), size, regions, offset);
                    // Not zeros, so that a region that is left out shows.
                    let mut found = vec![0xDEAD_BEEF; regions];
                    assert!(region_xor_into(level, data, &mut found, 1));
                    assert_eq!(found, xors, "{context:?}");
                    let mut both = Fingerprint::new(size as u64, regions, level).unwrap();
                    both.add(0, data);
                    assert_eq!(both.values(), expected, "{context:?}");
                }
            }
        }
    }
}

#[test]
fn values_do_not_depend_on_the_number_of_threads() {
    let data = pattern((26 << 20) + 3);
    let level = Level::detect();
    for regions in [1, 4, 64] {
        let mut one = vec![0; regions];
        assert!(region_xor_into(level, &data, &mut one, 1));
        let mut alone = Fingerprint::new(data.len() as u64, regions, level).unwrap();
        alone.add(0, &data);
        for threads in [2, 3, 16] {
            let mut several = vec![1; regions];
            assert!(region_xor_into(level, &data, &mut several, threads));
            assert_eq!(several, one, "{threads}");
            let mut shared = Fingerprint::new(data.len() as u64, regions, level).unwrap();
            shared.add_all(&data, threads);
            assert_eq!(shared.values(), alone.values(), "{threads}");
        }
    }
}

#[test]
fn levels_have_distinct_names_and_the_portable_one_is_always_there() {
    let mut names: Vec<_> = Level::available()
        .iter()
        .map(|level| level.name())
        .collect();
    assert_eq!(names[0], "portable");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Level::available().len());
}

#[test]
fn keys_stay_right_where_the_index_exceeds_32_bits() {
    let data = pattern(400);
    for first in [
        (1u64 << 32) - 1,
        (1 << 32) - 16,
        (1 << 32) - 50,
        1 << 32,
        7 << 32,
    ] {
        let expected = words(&data)
            .iter()
            .zip(first..)
            .fold(0, |acc, (w, i)| acc ^ mix(*w, i));
        for level in Level::available() {
            assert_eq!(level.both(&data, first).mix, expected, "{level:?} {first}");
        }
    }
}

#[test]
fn region_counts_out_of_range_are_refused() {
    for regions in [0, 65, usize::MAX] {
        assert!(Regions::new(100, regions).is_none());
        assert!(region_xor(&[1], regions).is_none());
        assert!(region_mix(&[1], regions).is_none());
        assert!(fingerprint(&[1], regions).is_none());
    }
}

#[test]
fn recorded_form_is_all_xor_values_then_all_mix_values() {
    let data = pattern(40);
    let expected: Vec<u8> = (region_xor(&data, 3).unwrap().into_iter())
        .chain(region_mix(&data, 3).unwrap())
        .flat_map(u32::to_le_bytes)
        .collect();
    assert_eq!(fingerprint(&data, 3).unwrap().to_bytes(), expected);
}

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
fn contiguous(
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
    fn pieces_in_any_order_give_the_value_of_the_whole(
        data in prop::collection::vec(any::<u8>(), 0..3000),
        cuts in prop::collection::vec(0usize..750, 0..5),
        regions in 1usize..=64,
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| (4 * c).min(data.len() / 4 * 4)).collect();
        cuts.extend([0, data.len()]);
        cuts.sort_unstable();
        let mut pieces = Fingerprint::new(data.len() as u64, regions, Level::detect()).unwrap();
        for pair in cuts.windows(2).rev() {
            pieces.add(pair[0] as u64, &data[pair[0]..pair[1]]);
        }
        prop_assert_eq!(pieces.values(), reference(&data, regions));
    }

    #[test]
    fn any_bytes_at_any_alignment_give_the_reference_values(
        buffer in prop::collection::vec(any::<u8>(), 64..6000),
        offset in 0usize..64,
        regions in 1usize..=64,
    ) {
        let data = &buffer[offset..];
        let expected = reference(data, regions);
        for level in Level::available() {
            let mut found = vec![7; regions];
            region_xor_into(level, data, &mut found, 1);
            let xors: Vec<u32> = expected.iter().map(|values| values.xor).collect();
            prop_assert_eq!(&found, &xors);
            let mut both = Fingerprint::new(data.len() as u64, regions, level).unwrap();
            both.add(0, data);
            prop_assert_eq!(both.values(), &expected[..]);
        }
    }

    #[test]
    fn every_word_lies_in_the_region_that_claims_it(nbytes in 0u64..5000, regions in 1usize..=64) {
        let split = Regions::new(nbytes, regions).unwrap();
        let mut next = 0;
        for region in 0..regions {
            prop_assert_eq!(split.words(region).start, next);
            next = split.words(region).end;
            for word in split.words(region) {
                prop_assert_eq!(split.of_word(word), region);
            }
        }
        prop_assert_eq!(next, nbytes.div_ceil(4));
    }

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
    let (rows, columns) = (133, 1036);
    for itemsize in [1, 2, 4, 8, 16, 12] {
        let base = pattern(rows * columns * itemsize + 1);
        let cases: [([usize; 3], [isize; 3]); 7] = [
            ([1, columns, rows], [1, 1, columns as isize]),
            ([1, columns, 132], [1, 1, columns as isize]),
            ([1, columns - 3, 12], [1, 1, columns as isize]),
            ([1, 18, 132], [1, 1, columns as isize]),
            ([1, rows, columns / 2], [1, columns as isize, 2]),
            ([1, rows, columns - 7], [1, columns as isize, 1]),
            // As channels in the last dimension of memory: 2 images of 37 by 28, 66 channels.
            ([2, 66, 37 * 28], [66 * 37 * 28, 1, 66]),
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
