//! The writer: threads append records, one native thread encodes and publishes.
//!
//! One mutex guards the current batch and the queue of cut batches. The publishing thread takes
//! it only to fetch a batch, never while it encodes or writes, and never takes a lock of the
//! caller's (the Python GIL). A full queue makes the appending thread wait; nothing is dropped.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::encode::{Identity, encode};
use super::error::CaptureError;
use super::fork::Process;
use super::intern::Interner;
use super::publish::Publisher;
use super::records::{CallRow, EndRow, LayoutRow, MarkRow, Records, SpanRow, TensorRow, ValueRow};
use super::{batch_file_name, batch_sequence};
use crate::fingerprint::MAX_REGIONS;

/// A batch is cut when its oldest record is older than this as another arrives.
const MAX_AGE: Duration = Duration::from_secs(1);
/// A batch is cut when its names hold this many bytes.
const MAX_NAME_BYTES: usize = 16 << 20;
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
    /// Bytes of published batches.
    pub bytes: u64,
    /// How often a caller waited because the queue was full.
    pub blocked: u64,
    /// How long callers waited, ns.
    pub blocked_ns: u64,
}

/// A batch between the appending and the publishing thread.
struct Cut {
    first_tick: u64,
    records: Records,
}

#[derive(Default)]
struct State {
    interner: Interner,
    current: Records,
    name_bytes: usize,
    /// Tick of the last record.
    tick: u64,
    /// Tick before the current batch's first record.
    tick_before: u64,
    /// When the current batch got its first record.
    oldest: Option<Instant>,
    queue: VecDeque<Cut>,
    /// Whether the thread holds a batch that it took from the queue.
    publishing: bool,
    closing: bool,
    error: Option<Arc<CaptureError>>,
    stats: Stats,
}

struct Shared {
    state: Mutex<State>,
    /// The queue got a batch, or the writer is closing.
    work: Condvar,
    /// The thread finished a batch.
    progress: Condvar,
    identity: Identity,
    created: Instant,
    max_batch_records: usize,
    queue_batches: usize,
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
pub struct CaptureWriter {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    process: Process,
}

impl CaptureWriter {
    /// Starts a writer in a directory without batches.
    ///
    /// # Errors
    /// [`CaptureError::Invalid`] for an option out of range; [`CaptureError::Io`], of kind
    /// `AlreadyExists` when the directory holds a batch of another writer.
    pub fn new(options: Options) -> Result<Self, CaptureError> {
        check_options(&options)?;
        let prefix = format!("rank-{}-{}", options.rank, std::process::id());
        let publisher = Publisher::new(&options.directory, &options.staging, prefix)?;
        refuse_batches(&options.directory)?;
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            progress: Condvar::new(),
            identity: Identity {
                capture_id: options.capture_id,
                rank: options.rank,
                regions: options.regions,
                created_unix_ns: since_epoch.as_nanos() as u64,
            },
            created: Instant::now(),
            max_batch_records: options.max_batch_records,
            queue_batches: options.queue_batches,
        });
        let process = Process::current();
        let publishing = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("xorsig-writer".into())
            .spawn(move || publishing.publish_until_closed(&publisher))
            .map_err(CaptureError::io("start the writer thread for", &options.directory))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)), process })
    }

    /// Bytes of a signature: two values of 4 bytes per region.
    pub fn signature_bytes(&self) -> usize {
        8 * self.shared.identity.regions as usize
    }

    /// Whether this is a forked child of the process that made the writer.
    ///
    /// Then no other method may be called, and the value must be leaked: locks may be held by
    /// threads that do not exist.
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
        let mut state = self.shared.state.try_lock().ok()?;
        if state.usable().is_ok() {
            let now = Instant::now();
            if self.shared.must_cut(&state, now) {
                if state.queue.len() >= self.shared.queue_batches {
                    return None;
                }
                self.shared.cut(&mut state);
            }
        }
        Some(self.shared.run(&mut state, append))
    }

    /// Runs `append` on the current batch, after waiting for room in the queue.
    ///
    /// # Errors
    /// [`WriteError`]; what `append` returns is passed on.
    pub fn append<T>(
        &self,
        append: impl FnOnce(&mut Appender<'_>) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        let shared = &*self.shared;
        let mut state = shared.lock();
        let mut waiting = None;
        while state.usable().is_ok() && shared.must_cut(&state, Instant::now()) {
            if state.queue.len() < shared.queue_batches {
                shared.cut(&mut state);
                break;
            }
            waiting.get_or_insert_with(Instant::now);
            state = shared.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(since) = waiting {
            state.stats.blocked += 1;
            state.stats.blocked_ns += since.elapsed().as_nanos() as u64;
        }
        shared.run(&mut state, append)
    }

    /// Cuts the current batch and waits until everything is published.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn flush(&self) -> Result<(), WriteError> {
        let mut state = self.shared.lock();
        state.usable()?;
        self.shared.cut(&mut state);
        while state.error.is_none() && (state.publishing || !state.queue.is_empty()) {
            state = self.shared.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match &state.error {
            None => Ok(()),
            Some(error) => Err(WriteError::Publish(Arc::clone(error))),
        }
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        self.shared.lock().stats
    }

    /// Publishes what is left and ends the thread; the second call returns the same.
    ///
    /// # Errors
    /// [`WriteError::Publish`], also when it was reported before.
    pub fn close(&self) -> Result<Stats, WriteError> {
        let mut state = self.shared.lock();
        if !state.closing {
            self.shared.cut(&mut state);
            state.closing = true;
            self.shared.work.notify_one();
            self.shared.progress.notify_all();
        }
        drop(state);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread was turned into the state's error by its guard.
            let _ = thread.join();
        }
        let state = self.shared.lock();
        match &state.error {
            None => Ok(state.stats),
            Some(error) => Err(WriteError::Publish(Arc::clone(error))),
        }
    }
}

impl Drop for CaptureWriter {
    fn drop(&mut self) {
        if !self.is_foreign() {
            // A failure was the caller's to ask for with `close`.
            let _ = self.close();
        }
    }
}
