//! The bytes of a batch file.

use proptest::prelude::*;

use super::*;
use crate::capture::decode::{decode, decode_into};
use crate::capture::encode::encode;
use crate::capture::header::{ENTRY_BYTES, HEADER_BYTES, Header, crc64};
use crate::capture::{batch_sequence, parse_capture_id, receipt};

fn sample_file() -> Vec<u8> {
    encode(&IDENTITY, 9, 11, &sample())
}

/// Both checksums made right again after a change.
fn reseal(file: &mut [u8]) {
    let mut header = Header::decode(&sample_file()).unwrap();
    header.payload_bytes = (file.len() - HEADER_BYTES) as u64;
    header.payload_crc = crc64(&file[HEADER_BYTES..]);
    file[..HEADER_BYTES].copy_from_slice(&header.encode());
}

#[test]
fn batch_round_trips() {
    let (header, records) = decode(&sample_file()).unwrap();
    assert_eq!(records, sample());
    let file = sample_file();
    assert_eq!(
        header,
        Header {
            rank: 3,
            capture_id: ID,
            sequence: 9,
            created_unix_ns: IDENTITY.created_unix_ns,
            first_tick: 11,
            last_tick: 16,
            records: 6,
            sections: 10,
            regions: 2,
            payload_bytes: (file.len() - HEADER_BYTES) as u64,
            payload_crc: crc64(&file[HEADER_BYTES..]),
        }
    );
}

#[test]
fn every_flipped_bit_of_a_batch_is_found() {
    let file = sample_file();
    for bit in 0..8 * file.len() {
        let mut damaged = file.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&damaged).is_err(), "bit {bit} of {}", 8 * file.len());
    }
}

#[test]
fn every_truncation_and_extension_of_a_batch_is_found() {
    let file = sample_file();
    for length in 0..file.len() {
        assert!(
            decode(&file[..length]).is_err(),
            "{length} of {} bytes",
            file.len()
        );
    }
    assert!(decode(&[&file[..], &[0]].concat()).is_err());
}

#[test]
fn random_damage_to_a_large_batch_is_found() {
    let mut records = sample();
    records.ends.clear();
    records.values.clear();
    records.marks.clear();
    records.withdrawn.clear();
    // SplitMix64: fingerprints that no compressor shortens, and where the damage goes.
    let mut seed = 1u64;
    let mut random = move || {
        seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    };
    for tick in 13..50_000 {
        let signature = [random().to_le_bytes(), random().to_le_bytes()].concat();
        let row = TensorRow {
            tick,
            call: 11,
            role: 0,
            slot: 5,
            layout: 2,
            signature: Some(&signature),
            note: 0,
        };
        records.tensors.push(row, 16);
    }
    let mut file = encode(&IDENTITY, 9, 11, &records);
    assert_eq!(decode(&file).unwrap().1, records);
    assert!(file.len() > 800_000);
    for _ in 0..2000 {
        let bit = random() as usize % (8 * file.len());
        file[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&file).is_err(), "bit {bit}");
        file[bit / 8] ^= 1 << (bit % 8);
        let length = random() as usize % file.len();
        assert!(decode(&file[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn damage_behind_right_checksums_is_refused_without_panic_or_large_allocation() {
    let file = sample_file();
    for at in HEADER_BYTES..file.len() {
        for value in [0, 0x7F, 0xFF] {
            let mut damaged = file.clone();
            damaged[at] = value;
            reseal(&mut damaged);
            // Whether it is refused depends on the byte; that it returns is the point.
            if let Ok((_, records)) = decode(&damaged) {
                assert_eq!(records.len(), 6, "byte {at} set to {value}");
            }
        }
    }
}

#[test]
fn a_number_of_rows_that_cannot_be_true_is_refused() {
    let file = sample_file();
    let sections = Header::decode(&file).unwrap().sections as usize;
    assert_eq!(sections, 10);
    for section in 0..sections {
        for rows in [3u32, 1 << 20, u32::MAX] {
            let mut damaged = file.clone();
            let at = HEADER_BYTES + section * ENTRY_BYTES + 4;
            damaged[at..at + 4].copy_from_slice(&rows.to_le_bytes());
            reseal(&mut damaged);
            let reason = decode(&damaged).unwrap_err();
            assert!(reason.contains("is unreadable"), "{section}: {reason}");
        }
    }
}

#[test]
fn a_batch_decoded_over_another_is_the_same_as_alone() {
    let mut records = Records::default();
    let mut many = sample();
    for tick in 17..2000 {
        let row = TensorRow {
            tick,
            call: 11,
            role: 0,
            slot: 5,
            layout: 2,
            signature: Some(&[7; 16]),
            note: 0,
        };
        many.tensors.push(row, 16);
    }
    let none = Records {
        calls: sample().calls,
        ..Records::default()
    };
    for batch in [&many, &sample(), &none, &many] {
        let file = encode(&IDENTITY, 9, 11, batch);
        decode_into(&file, &mut records).unwrap();
        assert_eq!(&records, batch);
    }
}

#[test]
fn header_of_another_version_is_refused() {
    let mut bytes = Header::decode(&sample_file()).unwrap().encode();
    bytes[8] = 2;
    let crc = crc32fast::hash(&bytes[..108]);
    bytes[108..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(
        Header::decode(&bytes).unwrap_err(),
        "format version 2 is not 1"
    );
}

#[test]
fn file_names_and_sequences_correspond() {
    for sequence in [0, 1, 99_999_999, 100_000_000, u64::MAX] {
        assert_eq!(batch_sequence(&batch_file_name(sequence)), Some(sequence));
    }
    for name in [
        "batch-1.xsb",
        "batch-+0000001.xsb",
        ".batch-00000001.xsb",
        "batch-00000001.xsb.tmp",
    ] {
        assert_eq!(batch_sequence(name), None, "{name}");
    }
}

#[test]
fn capture_ids_are_32_hexadecimal_digits() {
    let id = parse_capture_id("000102030405060708090a0b0c0d0E0F").unwrap();
    assert_eq!(id, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    for text in [
        "",
        "ab",
        "+00102030405060708090a0b0c0d0e0f",
        &"g".repeat(32),
        &"0".repeat(33),
    ] {
        assert!(
            matches!(parse_capture_id(text), Err(CaptureError::Invalid(_))),
            "{text}"
        );
    }
}

prop_compose! {
    /// Records whose ticks are 1 and following, dealt to the sections at random.
    fn any_records()(
        names in prop::collection::vec(".{0,12}", 0..6),
        kinds in prop::collection::vec((0u8..5, any::<u64>(), any::<u32>(), any::<bool>()), 0..60),
        spans in prop::collection::vec((any::<[i32; 4]>(), any::<u64>()), 0..5),
        shape in prop::collection::vec(any::<i64>(), 0..5),
        texts in prop::collection::vec(".{0,12}", 0..4),
    ) -> Records {
        let mut records = Records { first_name: 1, names, texts, ..Records::default() };
        records.layouts = vec![
            LayoutRow { dtype: 0, shape: shape.clone(), strides: Some(shape), device: 1, kind: 2, logical_nbytes: 3 },
            LayoutRow { dtype: 0, shape: vec![], strides: None, device: 1, kind: 2, logical_nbytes: u64::MAX },
        ];
        let mut time_ns = 0;
        for (tick, (kind, wide, narrow, flag)) in (1..).zip(kinds) {
            time_ns += wide >> 8;
            let (role, step) = (narrow as u8, wide.cast_signed());
            match kind {
                0 => records.calls.push(CallRow {
                    tick, time_ns, parent: wide, site: narrow, step, phase: role, thread: narrow, flags: narrow, callee: narrow,
                }),
                1 => records.ends.push(EndRow { tick, time_ns, call: wide, status: role, flags: narrow, error: narrow }),
                2 => {
                    let signature = [role; 16];
                    records.tensors.push(
                        TensorRow { tick, call: wide, role, slot: narrow, layout: narrow, signature: flag.then_some(&signature[..]), note: narrow },
                        16,
                    );
                }
                3 => records.values.push(ValueRow { tick, call: wide, role, slot: narrow, text: narrow }),
                _ => records.marks.push(MarkRow { tick, time_ns, kind: role, step, name: narrow, text: narrow }),
            }
        }
        records.spans = spans.into_iter().map(|(position, count)| SpanRow {
            file: 1, qualname: 2, position, operator: 3, count, flags: 4, example: 5,
        }).collect();
        if records.names.is_empty() {
            records.first_name = 0;
        }
        records
    }
}

proptest! {
    #[test]
    fn any_batch_round_trips(records in any_records()) {
        let file = encode(&IDENTITY, 1, 1, &records);
        prop_assert_eq!(decode(&file).unwrap().1, records);
    }

    #[test]
    fn arbitrary_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(decode(&bytes).is_err());
        prop_assert!(receipt::parse(&bytes).is_err());
        // The same bytes as a payload whose checksums are right.
        let mut file = [&[0; HEADER_BYTES][..], &bytes].concat();
        reseal(&mut file);
        prop_assert!(decode(&file).is_err());
    }
}
