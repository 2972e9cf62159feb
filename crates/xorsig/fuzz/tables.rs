//! Whole captures: verification and materialisation.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use xorsig::capture::batch_file_name;
use xorsig::capture::reader::{CaptureReader, Expected};
use xorsig::materialize::materialize as write_tables;

use crate::{CAPTURE_ID, seal};

/// The batches of a directory: verification and tables agree on how much of them is whole.
///
/// The bytes are a sequence of batches, each behind its length (u16, little-endian).
pub fn materialize(bytes: &[u8]) {
    thread_local! {
        static FOLDER: RefCell<PathBuf> = RefCell::new(scratch());
    }
    FOLDER.with_borrow(|folder| {
        let rank = folder.join("rank-0");
        fs::create_dir_all(&rank).expect("a folder for the batches");
        let mut rest = bytes;
        let mut sequence = 0;
        while let Some((length, after)) = rest.split_first_chunk::<2>() {
            let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
            let (batch, after) = after.split_at(length);
            let file = rank.join(batch_file_name(sequence));
            fs::write(file, seal(batch, sequence)).expect("a batch");
            sequence += 1;
            rest = after;
        }
        let open = || CaptureReader::open(&rank, CAPTURE_ID, 0, Expected::default());
        let verified = open().and_then(CaptureReader::finish);
        let tables = folder.join("tables");
        let partial = write_tables(open().expect("a listing"), &tables, true).expect("tables");
        match verified {
            Ok(summary) => {
                assert_eq!(partial.incomplete, None);
                assert_eq!(partial.summary, summary);
            }
            Err(_) => assert!(partial.incomplete.is_some()),
        }
        fs::remove_dir_all(&rank).expect("the batches to go");
    });
}

/// A folder for this process, in memory where the system has such.
fn scratch() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    };
    let folder = parent.join(format!("xorsig-fuzz-{}", std::process::id()));
    // Left by an earlier process of the same number.
    let _ = fs::remove_dir_all(&folder);
    folder
}
