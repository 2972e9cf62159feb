//! Signatures that arrive after their records: late, in any order, or never.

use std::sync::Arc;

use super::*;
use crate::capture::append::{Appender, LayoutText};
use crate::capture::fork::Quiesce;
use crate::capture::pending::{LOST, Pending};
use crate::capture::publish::Publisher;
use crate::capture::queue::Queue;

const ROW: TensorRow<'static> = TensorRow {
    tick: 0,
    call: 0,
    role: 1,
    slot: 0,
    layout: 0,
    signature: None,
    note: 0,
};

fn define_layout(batch: &mut Appender<'_>) -> Result<u32, WriteError> {
    batch.layout(LayoutText {
        dtype: "f32",
        shape: vec![4],
        strides: None,
        device: "cuda:0",
        kind: "strided",
        logical_nbytes: 16,
    })
}

fn writer(folder: &Folder) -> CaptureWriter {
    let writer = CaptureWriter::new(&folder.options()).unwrap();
    writer.append(define_layout).unwrap();
    writer
}

fn append(writer: &CaptureWriter, signature: &Pending, unless: Option<&Pending>) -> u64 {
    let append = |batch: &mut Appender<'_>| batch.pending_tensor(ROW, signature, unless);
    writer.append(append).unwrap()
}

fn bytes(value: u8) -> [u8; 16] {
    [value; 16]
}

/// Tick, signature and note of a tensor.
type Found = (u64, Option<u8>, String);

/// The tensors of a capture, and the ticks withdrawn.
fn read(folder: &Folder) -> (Vec<Found>, Vec<u64>) {
    let (mut tensors, mut withdrawn) = (Vec::new(), Vec::new());
    let mut names = vec![String::new()];
    let directory = folder.0.join("rank-3");
    let mut reader = CaptureReader::open(&directory, ID, 3, Expected::default()).unwrap();
    while let Some(batch) = reader.next_batch().unwrap() {
        names.extend(batch.names.iter().cloned());
        withdrawn.extend(&batch.withdrawn);
        for i in 0..batch.tensors.len() {
            let row = batch.tensors.row(i, 16);
            let signature = row.signature.map(|signature| {
                assert!(signature.iter().all(|byte| *byte == signature[0]));
                signature[0]
            });
            tensors.push((row.tick, signature, names[row.note as usize].clone()));
        }
    }
    (tensors, withdrawn)
}

#[test]
fn signatures_that_arrive_in_any_order_stand_in_the_order_of_their_records() {
    let folder = Folder::new();
    let writer = writer(&folder);
    let signatures: Vec<Pending> = (0..8).map(|_| Pending::default()).collect();
    for signature in &signatures {
        append(&writer, signature, None);
    }
    for i in [5, 7, 0, 2, 1, 6, 3, 4] {
        let signature = std::slice::from_ref(&signatures[i]);
        writer.resolve(signature, Some(&bytes(i as u8))).unwrap();
    }
    writer.flush().unwrap();
    let expected = (0..8u8).map(|i| (u64::from(i) + 1, Some(i), String::new()));
    assert_eq!(read(&folder), (expected.collect(), vec![]));
    assert_eq!(writer.close().unwrap().records, 8);
}

#[test]
fn a_batch_waits_for_its_signatures_and_those_behind_wait_for_it() {
    let folder = Folder::new();
    let writer = writer(&folder);
    let (first, second) = (Pending::default(), Pending::default());
    append(&writer, &first, None);
    for _ in 0..3 {
        begin(&writer).unwrap();
    }
    append(&writer, &second, None);
    for _ in 0..4 {
        begin(&writer).unwrap();
    }
    writer
        .resolve(std::slice::from_ref(&second), Some(&bytes(2)))
        .unwrap();
    assert_eq!(writer.stats().batches, 0);
    writer
        .resolve(std::slice::from_ref(&first), Some(&bytes(1)))
        .unwrap();
    writer.flush().unwrap();
    assert_eq!(
        read(&folder).0,
        [(1, Some(1), String::new()), (5, Some(2), String::new())]
    );
}

#[test]
fn a_record_is_withdrawn_if_its_signature_is_the_earlier_one_and_its_tick_stays() {
    let folder = Folder::new();
    let writer = writer(&folder);
    let before: Vec<Pending> = (0..3).map(|_| Pending::default()).collect();
    let after: Vec<Pending> = (0..3).map(|_| Pending::default()).collect();
    for (after, before) in after.iter().zip(&before) {
        append(&writer, before, None);
        append(&writer, after, Some(before));
    }
    let values = |values: [u8; 3]| values.map(bytes).concat();
    writer.resolve(&after, Some(&values([7, 8, 9]))).unwrap();
    writer.resolve(&before, Some(&values([7, 0, 9]))).unwrap();
    let stats = writer.close().unwrap();
    let (tensors, withdrawn) = read(&folder);
    let found: Vec<_> = tensors
        .iter()
        .map(|(tick, value, _)| (*tick, *value))
        .collect();
    let kept = [(1, Some(7)), (3, Some(0)), (4, Some(8)), (5, Some(9))];
    assert_eq!((found, withdrawn), (kept.to_vec(), vec![2, 6]));
    assert_eq!((stats.records, stats.withdrawn), (4, 2));
    assert_eq!(folder.read().unwrap().records, 4);
}

#[test]
fn what_has_not_arrived_at_the_close_is_a_tensor_that_could_not_be_read() {
    let folder = Folder::new();
    let writer = writer(&folder);
    let (there, lost, never) = Default::default();
    for signature in [&there, &lost, &never] {
        append(&writer, signature, None);
    }
    append(&writer, &there, Some(&never));
    let one = |signature: &Pending, value: Option<u8>| {
        let value = value.map(bytes);
        let value = value.as_ref().map(|value| &value[..]);
        writer.resolve(std::slice::from_ref(signature), value)
    };
    one(&there, Some(3)).unwrap();
    one(&lost, None).unwrap();
    assert_eq!(writer.close().unwrap().records, 4);
    let lost = |tick: u64| (tick, None, LOST.to_owned());
    let read = read(&folder).0;
    let there = |tick: u64| (tick, Some(3), String::new());
    assert_eq!(read, [there(1), lost(2), lost(3), there(4)]);
    // Too late, and harmless.
    one(&never, Some(4)).unwrap();
}

#[test]
fn data_of_the_wrong_length_is_refused() {
    let folder = Folder::new();
    let writer = writer(&folder);
    let signature = Pending::default();
    let result = writer.resolve(std::slice::from_ref(&signature), Some(&[0; 15]));
    assert!(matches!(result, Err(WriteError::Invalid(_))));
    assert!(!signature.is_resolved());
}

#[test]
fn a_fork_does_not_wait_for_signatures_and_memory_is_bounded() {
    let folder = Folder::new();
    let options = folder.options();
    let publisher = Publisher::new(&options.directory, &options.staging, "t".into()).unwrap();
    let queue = Arc::new(Queue::new(&options, publisher));
    queue.append(define_layout).unwrap();
    let signature = Pending::default();
    let tensor = |batch: &mut Appender<'_>| batch.pending_tensor(ROW, &signature, None);
    // Two batches of four wait, a third fills, then there is no room.
    let taken = (0..100)
        .take_while(|_| queue.try_append(tensor).is_some())
        .count();
    assert_eq!(taken, 12);
    queue.quiesce();
    assert_eq!(queue.stats().batches, 0);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| queue.append(tensor));
        while queue.stats().blocked == 0 {
            std::thread::yield_now();
        }
        queue.resolve(std::slice::from_ref(&signature), Some(&bytes(1)));
        assert_eq!(waiting.join().unwrap().unwrap(), 13);
    });
    let stats = queue.close().unwrap();
    assert_eq!((stats.records, stats.blocked), (13, 1));
}
