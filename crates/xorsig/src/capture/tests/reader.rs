//! Directories of batches that are not what a writer leaves.

use super::*;
use crate::capture::encode::encode;
use crate::capture::error::Corrupt;

fn corrupt(folder: &Folder) -> Corrupt {
    match folder.read() {
        Err(CaptureError::Corrupt(corrupt)) => corrupt,
        other => panic!("{other:?}"),
    }
}

#[test]
fn written_batches_are_read_back() {
    let folder = three_batches();
    let summary = folder
        .read_expecting(Expected {
            batches: Some(3),
            records: Some(12),
        })
        .unwrap();
    assert_eq!(
        (summary.batches, summary.records, summary.last_tick),
        (3, 12, 12)
    );
    assert_eq!(fs::read_dir(folder.0.join("staging")).unwrap().count(), 0);
}

#[test]
fn a_missing_batch_is_found_in_the_middle_and_at_the_end() {
    let folder = three_batches();
    fs::remove_file(folder.batch(1)).unwrap();
    let found = corrupt(&folder);
    assert_eq!(
        (found.sequence, found.reason.as_str()),
        (Some(1), "the batch is missing")
    );
    let folder = three_batches();
    fs::remove_file(folder.batch(2)).unwrap();
    assert!(
        folder.read().is_ok(),
        "without a receipt nobody knows of the last batch"
    );
    for expected in [
        Expected {
            batches: Some(3),
            records: None,
        },
        Expected {
            batches: None,
            records: Some(12),
        },
        Expected {
            batches: Some(1),
            records: None,
        },
    ] {
        let error = folder.read_expecting(expected).unwrap_err();
        assert!(matches!(error, CaptureError::Corrupt(_)), "{error:?}");
    }
}

#[test]
fn swapped_and_duplicated_batches_are_found() {
    let folder = three_batches();
    let (first, second) = (
        fs::read(folder.batch(0)).unwrap(),
        fs::read(folder.batch(1)).unwrap(),
    );
    fs::write(folder.batch(0), &second).unwrap();
    fs::write(folder.batch(1), &first).unwrap();
    assert_eq!(
        corrupt(&folder).reason,
        "the batch is number 1 under another name"
    );
    fs::write(folder.batch(0), &first).unwrap();
    assert_eq!(
        corrupt(&folder).reason,
        "the batch is number 0 under another name"
    );
}

#[test]
fn batches_of_another_capture_rank_or_writer_are_found() {
    let other = [
        Identity {
            capture_id: [1; 16],
            ..IDENTITY
        },
        Identity {
            rank: 4,
            ..IDENTITY
        },
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
        records.withdrawn.clear();
        records.tensors = Tensors::default();
        fs::write(folder.batch(2), encode(&identity, 2, 9, &records)).unwrap();
        assert!(
            corrupt(&folder).reason.contains(reason),
            "{:?}",
            corrupt(&folder)
        );
    }
}

#[test]
fn undefined_ids_and_wrong_calls_are_found() {
    type Change = fn(&mut Records);
    let cases: [(Change, &str); 8] = [
        (|r| r.values[0].slot = 7, "name 7 is not defined"),
        (|r| r.tensors.layouts[0] = 3, "layout 3 is not defined"),
        (|r| r.values[0].text = 2, "the batch has no text 2"),
        (|r| r.marks[0].text = 7, "the batch has no text 7"),
        (|r| r.first_name = 1, "names begin at id 1 instead of 5"),
        (
            |r| r.calls[0].parent = 11,
            "record 11 refers to the later call 11",
        ),
        (|r| r.ends[0].call = 10, "call 10 ends but is not open"),
        (
            |r| r.values[0].tick = 12,
            "tick 12 is repeated or out of range",
        ),
    ];
    for (change, reason) in cases {
        let folder = Folder::new();
        fs::create_dir(folder.0.join("rank-3")).unwrap();
        // Ticks 1 to 10, names 1 to 4 and layouts 0 to 1 come before the sample.
        let mark = |tick| MarkRow {
            tick,
            time_ns: 0,
            kind: 0,
            step: 0,
            name: 0,
            text: 0,
        };
        let mut before = sample();
        before.layouts = vec![before.layouts[0].clone(), before.layouts[0].clone()];
        before
            .layouts
            .iter_mut()
            .for_each(|l| (l.dtype, l.device) = (0, 0));
        let before = Records {
            first_name: 1,
            names: ["a", "b", "c", "d"].map(String::from).to_vec(),
            texts: vec![String::new()],
            first_layout: 0,
            layouts: before.layouts,
            marks: (1..11).map(mark).collect(),
            ..Records::default()
        };
        fs::write(folder.batch(0), encode(&IDENTITY, 0, 1, &before)).unwrap();
        fs::write(folder.batch(1), encode(&IDENTITY, 1, 11, &sample())).unwrap();
        folder.read().unwrap();
        let mut records = sample();
        change(&mut records);
        fs::write(folder.batch(1), encode(&IDENTITY, 1, 11, &records)).unwrap();
        assert_eq!(corrupt(&folder).reason, reason);
    }
}
