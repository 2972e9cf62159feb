//! The batch format, its reader and its writer.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use super::append::{Begin, LayoutText};
use super::decode::decode;
use super::encode::{Identity, encode};
use super::error::{CaptureError, Corrupt};
use super::header::{HEADER_BYTES, Header, crc64};
use super::queue::Queue;
use super::reader::{CaptureReader, Expected, Summary};
use super::records::*;
use super::writer::{CaptureWriter, Options, Stats, WriteError};
use super::*;

const ID: [u8; 16] = [0xAB; 16];
const IDENTITY: Identity =
    Identity { capture_id: ID, rank: 3, regions: 2, created_unix_ns: 1_700_000_000_000_000_000 };

/// A directory that is removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("xorsig-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn options(&self) -> Options {
        Options {
            directory: self.0.join("rank-3"),
            staging: self.0.join("staging"),
            capture_id: ID,
            rank: 3,
            regions: 2,
            max_batch_records: 4,
            queue_batches: 2,
        }
    }

    fn read(&self) -> Result<Summary, CaptureError> {
        self.read_expecting(Expected::default())
    }

    fn read_expecting(&self, expected: Expected) -> Result<Summary, CaptureError> {
        CaptureReader::open(&self.0.join("rank-3"), ID, 3, expected)?.finish()
    }

    fn batch(&self, sequence: u64) -> PathBuf {
        self.0.join("rank-3").join(batch_file_name(sequence))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One record of every kind: ticks 11 to 15, names 5 and 6, layout 2.
fn sample() -> Records {
    let mut records = Records {
        first_name: 5,
        names: vec!["arg[0]".into(), "größe".into()],
        first_layout: 2,
        layouts: vec![LayoutRow {
            dtype: 5,
            shape: vec![2, 3],
            strides: None,
            device: 6,
            kind: 0,
            logical_nbytes: 24,
        }],
        calls: vec![CallRow {
            tick: 11,
            time_ns: 100,
            parent: 4,
            site: 17,
            step: -1,
            phase: 2,
            thread: 1,
            flags: 4,
            callee: 6,
        }],
        ends: vec![EndRow { tick: 14, time_ns: 300, call: 11, status: 1, flags: 2, error: 5 }],
        tensors: Tensors::default(),
        values: vec![ValueRow { tick: 13, call: 11, role: 0, slot: 5, value: 6 }],
        marks: vec![MarkRow { tick: 15, time_ns: 400, kind: 1, step: 7, name: 5, value: 6 }],
        spans: vec![SpanRow {
            file: 5,
            qualname: 6,
            position: [1, -1, 0, i32::MAX],
            operator: 5,
            count: u64::MAX,
            flags: 15,
            example: 0,
        }],
    };
    let signature = [1; 16];
    let row = TensorRow {
        tick: 12,
        call: 11,
        role: 1,
        slot: 5,
        layout: 2,
        signature: Some(&signature),
        note: 0,
    };
    records.tensors.push(row, 16);
    records
}

fn sample_file() -> Vec<u8> {
    encode(&IDENTITY, 9, 11, &sample()).unwrap()
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
            last_tick: 15,
            records: 6,
            sections: 8,
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
        assert!(decode(&file[..length]).is_err(), "{length} of {} bytes", file.len());
    }
    assert!(decode(&[&file[..], &[0]].concat()).is_err());
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
fn an_uncompressed_size_that_cannot_be_true_is_refused() {
    let file = sample_file();
    // A stored buffer has the length -1; claiming 2^40 bytes instead must not allocate them.
    let stored = (-1i64).to_le_bytes();
    let mut found = 0;
    for at in HEADER_BYTES..file.len() - 8 {
        if file[at..at + 8] == stored && file[at - 4..at] != [0xFF; 4] {
            let mut damaged = file.clone();
            damaged[at..at + 8].copy_from_slice(&(1i64 << 40).to_le_bytes());
            reseal(&mut damaged);
            assert!(decode(&damaged).unwrap_err().contains("cannot expand"), "{at}");
            found += 1;
        }
    }
    assert!(found > 10, "only {found} stored buffers");
}

#[test]
fn header_of_another_version_is_refused() {
    let mut bytes = Header::decode(&sample_file()).unwrap().encode();
    bytes[8] = 2;
    let crc = crc32fast::hash(&bytes[..108]);
    bytes[108..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(Header::decode(&bytes).unwrap_err(), "format version 2 is not 1");
}

#[test]
fn file_names_and_sequences_correspond() {
    for sequence in [0, 1, 99_999_999, 100_000_000, u64::MAX] {
        assert_eq!(batch_sequence(&batch_file_name(sequence)), Some(sequence));
    }
    for name in ["batch-1.xsb", "batch-+0000001.xsb", ".batch-00000001.xsb", "batch-00000001.xsb.tmp"] {
        assert_eq!(batch_sequence(name), None, "{name}");
    }
}

#[test]
fn capture_ids_are_32_hexadecimal_digits() {
    let id = parse_capture_id("000102030405060708090a0b0c0d0E0F").unwrap();
    assert_eq!(id, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    for text in ["", "ab", "+00102030405060708090a0b0c0d0e0f", &"g".repeat(32), &"0".repeat(33)] {
        assert!(matches!(parse_capture_id(text), Err(CaptureError::Invalid(_))), "{text}");
    }
}

fn begin(writer: &CaptureWriter) -> Result<u64, WriteError> {
    let call =
        Begin { parent: 0, site: 1, step: 0, phase: 0, thread: 0, flags: 0, callee: 0 };
    writer.append(|batch| batch.begin(call))
}

/// A capture of three batches of four records.
fn three_batches() -> Folder {
    let folder = Folder::new();
    let writer = CaptureWriter::new(&folder.options()).unwrap();
    for _ in 0..6 {
        let call = begin(&writer).unwrap();
        writer.append(|batch| batch.end(call, 0, 0, 0)).unwrap();
    }
    let stats = writer.close().unwrap();
    assert_eq!((stats.batches, stats.records), (3, 12));
    folder
}

fn corrupt(folder: &Folder) -> Corrupt {
    match folder.read() {
        Err(CaptureError::Corrupt(corrupt)) => corrupt,
        other => panic!("{other:?}"),
    }
}

#[test]
fn written_batches_are_read_back() {
    let folder = three_batches();
    let summary = folder.read_expecting(Expected { batches: Some(3), records: Some(12) }).unwrap();
    assert_eq!((summary.batches, summary.records, summary.last_tick), (3, 12, 12));
    assert_eq!(fs::read_dir(folder.0.join("staging")).unwrap().count(), 0);
}

#[test]
fn a_missing_batch_is_found_in_the_middle_and_at_the_end() {
    let folder = three_batches();
    fs::remove_file(folder.batch(1)).unwrap();
    let found = corrupt(&folder);
    assert_eq!((found.sequence, found.reason.as_str()), (Some(1), "the batch is missing"));
    let folder = three_batches();
    fs::remove_file(folder.batch(2)).unwrap();
    assert!(folder.read().is_ok(), "without a receipt nobody knows of the last batch");
    for expected in [
        Expected { batches: Some(3), records: None },
        Expected { batches: None, records: Some(12) },
        Expected { batches: Some(1), records: None },
    ] {
        let error = folder.read_expecting(expected).unwrap_err();
        assert!(matches!(error, CaptureError::Corrupt(_)), "{error:?}");
    }
}

#[test]
fn swapped_and_duplicated_batches_are_found() {
    let folder = three_batches();
    let (first, second) = (fs::read(folder.batch(0)).unwrap(), fs::read(folder.batch(1)).unwrap());
    fs::write(folder.batch(0), &second).unwrap();
    fs::write(folder.batch(1), &first).unwrap();
    assert_eq!(corrupt(&folder).reason, "the batch is number 1 under another name");
    fs::write(folder.batch(0), &first).unwrap();
    assert_eq!(corrupt(&folder).reason, "the batch is number 0 under another name");
}

#[test]
fn batches_of_another_capture_rank_or_writer_are_found() {
    let other = [
        Identity { capture_id: [1; 16], ..IDENTITY },
        Identity { rank: 4, ..IDENTITY },
        IDENTITY,
    ];
    let reasons = ["capture 0101", "rank 4", "another writer"];
    for (identity, reason) in other.into_iter().zip(reasons) {
        let folder = three_batches();
        let mut records = sample();
        records.calls.clear();
        records.ends.clear();
        records.values.clear();
        records.marks.clear();
        records.tensors = Tensors::default();
        fs::write(folder.batch(2), encode(&identity, 2, 9, &records).unwrap()).unwrap();
        assert!(corrupt(&folder).reason.contains(reason), "{:?}", corrupt(&folder));
    }
}

#[test]
fn undefined_ids_and_wrong_calls_are_found() {
    let cases: [(fn(&mut Records), &str); 6] = [
        (|r| r.values[0].slot = 7, "name 7 is not defined"),
        (|r| r.tensors.layouts[0] = 3, "layout 3 is not defined"),
        (|r| r.first_name = 1, "names begin at id 1 instead of 5"),
        (|r| r.calls[0].parent = 11, "record 11 refers to the later call 11"),
        (|r| r.ends[0].call = 10, "call 10 ends but is not open"),
        (|r| r.values[0].tick = 12, "tick 12 is repeated or out of range"),
    ];
    for (change, reason) in cases {
        let folder = Folder::new();
        fs::create_dir(folder.0.join("rank-3")).unwrap();
        // Ticks 1 to 10, names 1 to 4 and layouts 0 to 1 come before the sample.
        let mark = |tick| MarkRow { tick, time_ns: 0, kind: 0, step: 0, name: 0, value: 0 };
        let mut before = sample();
        before.layouts = vec![before.layouts[0].clone(), before.layouts[0].clone()];
        before.layouts.iter_mut().for_each(|l| (l.dtype, l.device) = (0, 0));
        let before = Records {
            first_name: 1,
            names: ["a", "b", "c", "d"].map(String::from).to_vec(),
            first_layout: 0,
            layouts: before.layouts,
            marks: (1..11).map(mark).collect(),
            ..Records::default()
        };
        fs::write(folder.batch(0), encode(&IDENTITY, 0, 1, &before).unwrap()).unwrap();
        fs::write(folder.batch(1), encode(&IDENTITY, 1, 11, &sample()).unwrap()).unwrap();
        folder.read().unwrap();
        let mut records = sample();
        change(&mut records);
        fs::write(folder.batch(1), encode(&IDENTITY, 1, 11, &records).unwrap()).unwrap();
        assert_eq!(corrupt(&folder).reason, reason);
    }
}

#[test]
fn a_directory_with_batches_is_refused() {
    let folder = three_batches();
    match CaptureWriter::new(&folder.options()).err() {
        Some(CaptureError::Io { source, .. }) => {
            assert_eq!(source.kind(), std::io::ErrorKind::AlreadyExists);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn options_out_of_range_are_refused() {
    let folder = Folder::new();
    let changes: [fn(&mut Options); 5] = [
        |o| o.regions = 0,
        |o| o.regions = 65,
        |o| o.max_batch_records = 0,
        |o| o.max_batch_records = (1 << 24) + 1,
        |o| o.queue_batches = 0,
    ];
    for change in changes {
        let mut options = folder.options();
        change(&mut options);
        assert!(matches!(CaptureWriter::new(&options).err(), Some(CaptureError::Invalid(_))));
    }
}

#[test]
fn arguments_out_of_range_are_refused() {
    let folder = Folder::new();
    let writer = CaptureWriter::new(&folder.options()).unwrap();
    let call = begin(&writer).unwrap();
    let good = TensorRow {
        tick: 0,
        call,
        role: 0,
        slot: 0,
        layout: 0,
        signature: Some(&[0; 16]),
        note: 0,
    };
    let layout = LayoutText {
        dtype: "f32",
        shape: vec![4],
        strides: None,
        device: "cpu",
        kind: "strided",
        logical_nbytes: 16,
    };
    assert_eq!(writer.append(|batch| batch.layout(layout.clone())).unwrap(), 0);
    writer.append(|batch| batch.tensor(good)).unwrap();
    let rows = [
        TensorRow { call: 99, ..good },
        TensorRow { role: 7, ..good },
        TensorRow { slot: 99, ..good },
        TensorRow { layout: 1, ..good },
        TensorRow { note: 99, ..good },
        TensorRow { signature: Some(&[0; 15]), ..good },
    ];
    for row in rows {
        let result = writer.append(|batch| batch.tensor(row));
        assert!(matches!(result, Err(WriteError::Invalid(_))), "{row:?}");
    }
    let results = [
        writer.append(|batch| batch.end(0, 0, 0, 0)),
        writer.append(|batch| batch.end(call, 2, 0, 0)),
        writer.append(|batch| batch.mark(4, 0, 0, 0)),
        writer.append(|batch| batch.mark(0, 0, 0, 99)),
    ];
    for result in results {
        assert!(matches!(result, Err(WriteError::Invalid(_))), "{result:?}");
    }
    // Nothing that was refused left a trace.
    let records = writer.close().unwrap().records;
    assert_eq!((records, folder.read().unwrap().records), (2, 2));
}

#[test]
fn a_full_queue_makes_the_caller_wait_and_drops_nothing() {
    let folder = Folder::new();
    let queue = Queue::new(&folder.options());
    let mark = |batch: &mut append::Appender<'_>| batch.mark(0, 0, 0, 0);
    // No thread publishes yet: two batches of four wait, a third fills, then there is no room.
    let taken = (0..100).take_while(|_| queue.try_append(mark).is_some()).count();
    assert_eq!(taken, 12);
    let publisher =
        publish::Publisher::new(&folder.options().directory, &folder.options().staging, "t".into());
    let publisher = publisher.unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| queue.append(mark));
        while queue.stats().blocked == 0 {
            std::thread::yield_now();
        }
        scope.spawn(|| queue.publish_until_closed(&publisher));
        assert_eq!(waiting.join().unwrap().unwrap(), 13);
        queue.flush().unwrap();
        queue.close();
    });
    let stats = queue.outcome().unwrap();
    assert_eq!((stats.batches, stats.records, stats.blocked), (4, 13, 1));
    assert_eq!(folder.read().unwrap().records, 13);
}

#[test]
fn a_publish_error_is_kept_and_ends_the_capture() {
    let folder = Folder::new();
    let writer = CaptureWriter::new(&folder.options()).unwrap();
    fs::write(folder.batch(0), "taken").unwrap();
    begin(&writer).unwrap();
    for result in [writer.flush(), begin(&writer).map(drop), writer.close().map(drop)] {
        match result {
            Err(WriteError::Publish(error)) => match &*error {
                CaptureError::Io { source, .. } => {
                    assert_eq!(source.kind(), std::io::ErrorKind::AlreadyExists);
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fs::read(folder.batch(0)).unwrap(), b"taken", "nothing was replaced");
}

#[test]
fn close_is_final_and_repeatable() {
    let folder = Folder::new();
    let writer = CaptureWriter::new(&folder.options()).unwrap();
    let empty = Stats::default();
    assert_eq!((writer.close().unwrap(), writer.close().unwrap()), (empty, empty));
    assert!(matches!(begin(&writer), Err(WriteError::Closed)));
    assert!(matches!(writer.flush(), Err(WriteError::Closed)));
    assert_eq!(folder.read().unwrap(), Summary::default());
}

#[test]
fn renaming_without_links_does_not_replace() {
    let folder = Folder::new();
    let (from, to) = (folder.0.join("from"), folder.0.join("to"));
    fs::write(&from, "new").unwrap();
    publish::rename_exclusively(&from, &to).unwrap();
    assert_eq!((from.exists(), fs::read(&to).unwrap()), (false, b"new".to_vec()));
    fs::write(&from, "newer").unwrap();
    let error = publish::rename_exclusively(&from, &to).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&to).unwrap(), b"new");
}

#[test]
fn receipts_round_trip_and_are_never_replaced() {
    let folder = Folder::new();
    let path = folder.0.join("receipts/rank-0.receipt");
    for (name, text) in [("a", ""), ("b", "{\"ü\": 1}\n"), ("c", "line\nline")] {
        let path = path.with_file_name(name);
        receipt::write(&path, text).unwrap();
        assert_eq!(receipt::read(&path).unwrap(), text);
    }
    receipt::write(&path, "one").unwrap();
    match receipt::write(&path, "two") {
        Err(CaptureError::Io { source, .. }) => {
            assert_eq!(source.kind(), std::io::ErrorKind::AlreadyExists);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(receipt::read(&path).unwrap(), "one");
}

#[test]
fn every_flipped_bit_and_every_truncation_of_a_receipt_is_found() {
    let folder = Folder::new();
    let path: &Path = &folder.0.join("receipt");
    receipt::write(path, "{\"rank\": 0, \"batches\": 12}").unwrap();
    let bytes = fs::read(path).unwrap();
    assert!(receipt::parse(&bytes).is_ok());
    for bit in 0..8 * bytes.len() {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(receipt::parse(&damaged).is_err(), "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert!(receipt::parse(&bytes[..length]).is_err(), "{length} bytes");
    }
    assert!(receipt::parse(&[&bytes[..], b"\n"].concat()).is_err());
}

prop_compose! {
    /// Records whose ticks are 1 and following, dealt to the sections at random.
    fn any_records()(
        names in prop::collection::vec(".{0,12}", 0..6),
        kinds in prop::collection::vec((0u8..5, any::<u64>(), any::<u32>(), any::<bool>()), 0..60),
        spans in prop::collection::vec((any::<[i32; 4]>(), any::<u64>()), 0..5),
        shape in prop::collection::vec(any::<i64>(), 0..5),
    ) -> Records {
        let mut records = Records { first_name: 1, names, ..Records::default() };
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
                3 => records.values.push(ValueRow { tick, call: wide, role, slot: narrow, value: narrow }),
                _ => records.marks.push(MarkRow { tick, time_ns, kind: role, step, name: narrow, value: narrow }),
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
        let file = encode(&IDENTITY, 1, 1, &records).unwrap();
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
