//! The writer: threads append records, one native thread encodes and publishes.
//!
//! The publishing thread lives while there is something to publish. It takes the shared lock only
//! to fetch a batch, never while it encodes or writes, and never takes a lock of the caller's (the
//! Python GIL). A full queue makes the appending thread wait; nothing is dropped.

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use super::append::Appender;
use super::batch_sequence;
use super::error::CaptureError;
use super::fork::{Process, before_forks};
use super::pending::Pending;
use super::publish::Publisher;
use super::queue::Queue;
use crate::fingerprint::MAX_REGIONS;

/// Largest batch, in records; keeps a tick's distance inside 32 bits.
const MAX_BATCH_RECORDS: usize = 1 << 24;

/// How a writer is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The rank's directory; batches appear here.
    pub directory: PathBuf,
    /// Where files are written before they are published; best on a local disk.
    pub staging: PathBuf,
    /// Identity of the capture.
    pub capture_id: [u8; 16],
    /// Rank that writes.
    pub rank: u32,
    /// Regions per fingerprint, 1 to 64.
    pub regions: u32,
    /// Records after which a batch is cut, 1 to 2^24.
    pub max_batch_records: usize,
    /// Cut batches that may wait for the thread, at least 1.
    pub queue_batches: usize,
}

/// What a writer has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Published batches.
    pub batches: u64,
    /// Records in published batches.
    pub records: u64,
    /// Records that were withdrawn.
    pub withdrawn: u64,
    /// Bytes of published batches.
    pub bytes: u64,
    /// How often a caller waited because the queue was full.
    pub blocked: u64,
    /// How long callers waited, ns.
    pub blocked_ns: u64,
}

/// Why a record was not taken.
#[derive(Clone, Debug)]
pub enum WriteError {
    /// Publishing a batch failed; the capture is incomplete from there on.
    Publish(Arc<CaptureError>),
    /// The writer was closed.
    Closed,
    /// An argument is out of its range.
    Invalid(&'static str),
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Publish(error) => error.fmt(f),
            Self::Closed => f.write_str("the capture writer is closed; create another one"),
            Self::Invalid(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for WriteError {}

/// Appends records to a rank's capture.
///
/// A fork of the process waits until what was cut is published, and the thread is gone. In the
/// child every method must be left alone ([`Self::is_foreign`]), and dropping the value there only
/// leaks it: locks may be held by threads that do not exist in the child.
pub struct CaptureWriter {
    queue: ManuallyDrop<Arc<Queue>>,
    process: Process,
}

impl CaptureWriter {
    /// Starts a writer in a directory without batches.
    ///
    /// # Errors
    /// [`CaptureError::Invalid`] for an option out of range; [`CaptureError::Io`], of kind
    /// `AlreadyExists` when the directory holds a batch of another writer.
    pub fn new(options: &Options) -> Result<Self, CaptureError> {
        check_options(options)?;
        let prefix = format!("rank-{}-{}", options.rank, std::process::id());
        let publisher = Publisher::new(&options.directory, &options.staging, prefix)?;
        refuse_batches(&options.directory)?;
        let process = Process::current().map_err(CaptureError::io(
            "watch for forks of the process that records to",
            &options.directory,
        ))?;
        let queue = Arc::new(Queue::new(options, publisher));
        let weak: Weak<Queue> = Arc::downgrade(&queue);
        before_forks(weak);
        Ok(Self {
            queue: ManuallyDrop::new(queue),
            process,
        })
    }

    /// Whether this is a forked child of the process that made the writer.
    pub fn is_foreign(&self) -> bool {
        !self.process.is_current()
    }

    /// Runs `append` on the current batch if that needs no waiting.
    ///
    /// `None` means that another thread holds the lock or the queue is full; then call
    /// [`Self::append`], which waits.
    pub fn try_append<T>(
        &self,
        append: impl FnOnce(&mut Appender<'_>) -> Result<T, WriteError>,
    ) -> Option<Result<T, WriteError>> {
        self.queue.try_append(append)
    }

    /// Runs `append` on the current batch, after waiting for room in the queue.
    ///
    /// # Errors
    /// [`WriteError`]; what `append` returns is passed on.
    pub fn append<T>(
        &self,
        append: impl FnOnce(&mut Appender<'_>) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        self.queue.append(append)
    }

    /// Signatures have arrived, one after the other in `bytes`; `None` means that they are lost.
    ///
    /// # Errors
    /// [`WriteError::Invalid`] if `bytes` has another length than the signatures together.
    pub fn resolve(&self, signatures: &[Pending], bytes: Option<&[u8]>) -> Result<(), WriteError> {
        let expected = signatures.len() * self.queue.signature_bytes();
        if bytes.is_some_and(|bytes| bytes.len() != expected) {
            let message = "data must have 8 bytes per region for each signature";
            return Err(WriteError::Invalid(message));
        }
        self.queue.resolve(signatures, bytes);
        Ok(())
    }

    /// Cuts the current batch and waits until everything is published, which needs all signatures.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn flush(&self) -> Result<(), WriteError> {
        self.queue.flush()
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        self.queue.stats()
    }

    /// Publishes what is left and ends the thread; the second call returns the same. Signatures
    /// that have not arrived are lost.
    ///
    /// # Errors
    /// [`WriteError::Publish`], also when it was reported before.
    pub fn close(&self) -> Result<Stats, WriteError> {
        self.queue.close()
    }
}

impl Drop for CaptureWriter {
    fn drop(&mut self) {
        if self.is_foreign() {
            return;
        }
        // A failure was the caller's to ask for with `close`.
        let _ = self.close();
        // SAFETY: `drop` runs once, and nothing uses the field after it.
        unsafe { ManuallyDrop::drop(&mut self.queue) };
    }
}

fn check_options(options: &Options) -> Result<(), CaptureError> {
    let regions = 1..=MAX_REGIONS as u32;
    if !regions.contains(&options.regions) {
        return Err(CaptureError::Invalid(format!(
            "regions must be 1 to {MAX_REGIONS}"
        )));
    }
    if !(1..=MAX_BATCH_RECORDS).contains(&options.max_batch_records) {
        let message = format!("max_batch_records must be 1 to {MAX_BATCH_RECORDS}");
        return Err(CaptureError::Invalid(message));
    }
    if options.queue_batches == 0 {
        return Err(CaptureError::Invalid(
            "queue_batches must be at least 1".into(),
        ));
    }
    Ok(())
}

/// Refuses a directory with a batch: two writers would mix their records.
fn refuse_batches(directory: &Path) -> Result<(), CaptureError> {
    let entries = std::fs::read_dir(directory).map_err(CaptureError::io("list", directory))?;
    for entry in entries {
        let entry = entry.map_err(CaptureError::io("list", directory))?;
        if entry
            .file_name()
            .to_str()
            .and_then(batch_sequence)
            .is_some()
        {
            let source = std::io::Error::new(
                std::io::ErrorKind::AlreadyExists,
                "it belongs to another writer; give every writer an empty directory",
            );
            let (action, path) = ("start a capture beside", entry.path());
            return Err(CaptureError::Io {
                action,
                path,
                source,
            });
        }
    }
    Ok(())
}
