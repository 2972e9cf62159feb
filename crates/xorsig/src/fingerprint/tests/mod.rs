//! Every level against a reference that is written to be read, not to be fast.

use proptest::prelude::*;

use super::kernel::{self, Values};
use super::level::Level;
use super::regions::Regions;
use super::*;

mod bounds;
mod strided;

/// Word lengths around what the kernel handles together (16 words), and around 4 KiB.
const LENGTHS: [usize; 24] = [
    0, 1, 2, 3, 4, 5, 7, 8, 9, 60, 63, 64, 65, 67, 127, 128, 129, 191, 193, 1023, 1024, 1025, 4095,
    4099,
];

/// Every alignment; a few under Miri, which is some thousand times slower.
fn offsets() -> impl Iterator<Item = usize> {
    (0..64).step_by(if cfg!(miri) { 21 } else { 1 })
}

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
    serde_json::from_str(include_str!("../../../vectors/fingerprint.json")).unwrap()
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
            for offset in offsets() {
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
    for size in SIZES.into_iter().filter(|&size| !cfg!(miri) || size < 600) {
        let regions = [1, 4, 64, 2, 3, 5, 7, 8, 13, 16, 31, 32, 63];
        for regions in regions.into_iter().take(if cfg!(miri) { 3 } else { 13 }) {
            for offset in offsets() {
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
    let data = pattern(if cfg!(miri) { 9003 } else { (26 << 20) + 3 });
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
}
