//! The writer, its queue and its way of publishing.

use std::sync::Arc;

use super::*;
use crate::capture::append::{Appender, LayoutText};
use crate::capture::publish::{Publisher, rename_exclusively};
use crate::capture::queue::Queue;
use crate::capture::writer::Stats;

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
        assert!(matches!(
            CaptureWriter::new(&options).err(),
            Some(CaptureError::Invalid(_))
        ));
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
    assert_eq!(
        writer.append(|batch| batch.layout(layout.clone())).unwrap(),
        0
    );
    writer.append(|batch| batch.tensor(good)).unwrap();
    let rows = [
        TensorRow { call: 99, ..good },
        TensorRow { role: 7, ..good },
        TensorRow { slot: 99, ..good },
        TensorRow { layout: 1, ..good },
        TensorRow { note: 99, ..good },
        TensorRow {
            signature: Some(&[0; 15]),
            ..good
        },
    ];
    for row in rows {
        let result = writer.append(|batch| batch.tensor(row));
        assert!(matches!(result, Err(WriteError::Invalid(_))), "{row:?}");
    }
    let results = [
        writer.append(|batch| batch.end(0, 0, 0, 0)),
        writer.append(|batch| batch.end(call, 2, 0, 0)),
        writer.append(|batch| batch.mark(5, 0, 0, "")),
        writer.append(|batch| batch.mark(0, 0, 99, "")),
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
    let options = folder.options();
    let publisher = Publisher::new(&options.directory, &options.staging, "t".into()).unwrap();
    let queue = Arc::new(Queue::new(&options, publisher));
    let mark = |batch: &mut Appender<'_>| batch.mark(0, 0, 0, "");
    // No thread publishes yet: two batches of four wait, a third fills, then there is no room.
    queue.occupy();
    let taken = (0..100)
        .take_while(|_| queue.try_append(mark).is_some())
        .count();
    assert_eq!(taken, 12);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| queue.append(mark));
        while queue.stats().blocked == 0 {
            std::thread::yield_now();
        }
        scope.spawn(|| queue.publish_waiting());
        assert_eq!(waiting.join().unwrap().unwrap(), 13);
        queue.flush().unwrap();
    });
    let stats = queue.close().unwrap();
    assert_eq!((stats.batches, stats.records, stats.blocked), (4, 13, 1));
    assert_eq!(folder.read().unwrap().records, 13);
}

#[test]
fn texts_of_values_go_with_their_batch() {
    let folder = Folder::new();
    let writer = CaptureWriter::new(&folder.options()).unwrap();
    for round in 0..3 {
        for text in ["same", "same", &round.to_string(), ""] {
            writer.append(|batch| batch.value(0, 0, 0, text)).unwrap();
        }
    }
    writer.close().unwrap();
    let mut reader =
        CaptureReader::open(&folder.0.join("rank-3"), ID, 3, Expected::default()).unwrap();
    for round in 0..3 {
        let records = reader.next_batch().unwrap().unwrap();
        assert_eq!(records.texts, ["same", &round.to_string(), ""]);
        let indices: Vec<u32> = records.values.iter().map(|value| value.text).collect();
        assert_eq!(indices, [0, 0, 1, 2]);
        assert!(records.names.is_empty());
    }
}

#[test]
fn the_thread_is_gone_before_a_fork() {
    let folder = Folder::new();
    let mut options = folder.options();
    options.max_batch_records = 1;
    let writer = CaptureWriter::new(&options).unwrap();
    for _ in 0..8 {
        begin(&writer).unwrap();
    }
    // SAFETY: the child only ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child without running anything that the parent's threads guard.
        unsafe { libc::_exit(i32::from(!writer.is_foreign())) };
    }
    // What was cut before the fork is on the disk; the eighth record is in the open batch.
    assert_eq!(writer.stats().batches, 7);
    let mut status = 0;
    // SAFETY: `status` is a place for the result.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(
        libc::WEXITSTATUS(status),
        0,
        "the child knows that it is one"
    );
    assert!(!writer.is_foreign());
    begin(&writer).unwrap();
    assert_eq!(writer.close().unwrap().records, 9);
}

#[test]
fn a_publish_error_is_kept_and_ends_the_capture() {
    let folder = Folder::new();
    let writer = CaptureWriter::new(&folder.options()).unwrap();
    fs::write(folder.batch(0), "taken").unwrap();
    begin(&writer).unwrap();
    for result in [
        writer.flush(),
        begin(&writer).map(drop),
        writer.close().map(drop),
    ] {
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
    assert_eq!(
        fs::read(folder.batch(0)).unwrap(),
        b"taken",
        "nothing was replaced"
    );
}

#[test]
fn a_panic_while_a_record_is_added_ends_the_capture() {
    let folder = Folder::new();
    let writer = CaptureWriter::new(&folder.options()).unwrap();
    begin(&writer).unwrap();
    let adding = || writer.append(|_| -> Result<(), WriteError> { panic!("half of a record") });
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(adding)).is_err());
    for _ in 0..2 {
        assert!(matches!(begin(&writer), Err(WriteError::Publish(_))));
        assert!(matches!(writer.close(), Err(WriteError::Publish(_))));
    }
    assert!(!folder.batch(0).exists());
}

#[test]
fn close_is_final_and_repeatable() {
    let folder = Folder::new();
    let writer = CaptureWriter::new(&folder.options()).unwrap();
    let empty = Stats::default();
    assert_eq!(
        (writer.close().unwrap(), writer.close().unwrap()),
        (empty, empty)
    );
    assert!(matches!(begin(&writer), Err(WriteError::Closed)));
    assert!(matches!(writer.flush(), Err(WriteError::Closed)));
    assert_eq!(folder.read().unwrap(), Summary::default());
}

#[test]
fn renaming_without_links_does_not_replace() {
    let folder = Folder::new();
    let (from, to) = (folder.0.join("from"), folder.0.join("to"));
    fs::write(&from, "new").unwrap();
    rename_exclusively(&from, &to).unwrap();
    assert_eq!(
        (from.exists(), fs::read(&to).unwrap()),
        (false, b"new".to_vec())
    );
    fs::write(&from, "newer").unwrap();
    let error = rename_exclusively(&from, &to).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&to).unwrap(), b"new");
}
