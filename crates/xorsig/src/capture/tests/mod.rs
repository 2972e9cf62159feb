//! The batch format, its reader and its writer: what their tests share.

mod batch;
mod pending;
mod reader;
mod receipts;
mod writer;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::append::Begin;
use super::batch_file_name;
use super::encode::Identity;
use super::error::CaptureError;
use super::reader::{CaptureReader, Expected, Summary};
use super::records::*;
use super::writer::{CaptureWriter, Options, WriteError};

const ID: [u8; 16] = [0xAB; 16];
const IDENTITY: Identity = Identity {
    capture_id: ID,
    rank: 3,
    regions: 2,
    created_unix_ns: 1_700_000_000_000_000_000,
};

/// A directory that is removed with the value.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "xorsig-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
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

/// One record of every kind, and a withdrawn one: ticks 11 to 16, names 5 and 6, layout 2.
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
        texts: vec!["0.5".into(), "größe".into()],
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
        ends: vec![EndRow {
            tick: 14,
            time_ns: 300,
            call: 11,
            status: 1,
            flags: 2,
            error: 5,
        }],
        tensors: Tensors::default(),
        values: vec![ValueRow {
            tick: 13,
            call: 11,
            role: 0,
            slot: 5,
            text: 0,
        }],
        marks: vec![MarkRow {
            tick: 15,
            time_ns: 400,
            kind: 1,
            step: 7,
            name: 5,
            text: 1,
        }],
        spans: vec![SpanRow {
            file: 5,
            qualname: 6,
            position: [1, -1, 0, i32::MAX],
            operator: 5,
            count: u64::MAX,
            flags: 15,
            example: 0,
        }],
        withdrawn: vec![16],
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

fn begin(writer: &CaptureWriter) -> Result<u64, WriteError> {
    let call = Begin {
        parent: 0,
        site: 1,
        step: 0,
        phase: 0,
        thread: 0,
        flags: 0,
        callee: 0,
    };
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
