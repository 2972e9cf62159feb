//! The bounded queue between the appending threads and the publishing thread.
//!
//! The publishing thread exists only while it has work: it starts when a batch is cut, or when the
//! last signature of the first batch arrives, and ends when the first batch still lacks one or none
//! is left. A program that records little has no thread of ours most of the time, and a fork waits
//! for the thread to end ([`Quiesce`]); it does not wait for signatures, whose bringer may need what
//! the forking thread holds.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::append::{Appender, Cut, Open};
use super::batch_file_name;
use super::encode::{Identity, encode};
use super::error::CaptureError;
use super::fork::Quiesce;
use super::pending::Pending;
use super::publish::Publisher;
use super::records::Records;
use super::thread::{self, ThreadId};
use super::writer::{Options, Stats, WriteError};

/// A batch is cut when its oldest record is older than this as another arrives.
const MAX_AGE: Duration = Duration::from_secs(1);
/// A batch is cut when its names and texts hold this many bytes.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// A batch is cut when its signatures hold this many bytes.
const MAX_SIGNATURE_BYTES: usize = 1 << 28;

struct State {
    open: Open,
    waiting: VecDeque<Cut>,
    /// The memory of the batch that was published last: growing a new one record by record costs
    /// the recording thread more than filling it.
    spare: Records,
    /// Whether the publishing thread runs.
    running: bool,
    /// The last publishing thread, once it has started.
    thread: Option<ThreadId>,
    closing: bool,
    error: Option<Arc<CaptureError>>,
    stats: Stats,
}

/// The lock, its condition, and what never changes.
pub(super) struct Queue {
    state: Mutex<State>,
    /// The thread took or finished a batch, or ended.
    progress: Condvar,
    publisher: Publisher,
    identity: Identity,
    max_batch_records: usize,
    queue_batches: usize,
}

impl Queue {
    pub(super) fn new(options: &Options, publisher: Publisher) -> Self {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            state: Mutex::new(State {
                open: Open::new(Instant::now()),
                waiting: VecDeque::new(),
                spare: Records::default(),
                running: false,
                thread: None,
                closing: false,
                error: None,
                stats: Stats::default(),
            }),
            progress: Condvar::new(),
            publisher,
            identity: Identity {
                capture_id: options.capture_id,
                rank: options.rank,
                regions: options.regions,
                created_unix_ns: unix.as_nanos() as u64,
            },
            max_batch_records: options.max_batch_records,
            queue_batches: options.queue_batches,
        }
    }

    pub(super) fn try_append<T>(
        self: &Arc<Self>,
        append: impl FnOnce(&mut Appender<'_>) -> Result<T, WriteError>,
    ) -> Option<Result<T, WriteError>> {
        let mut state = self.state.try_lock().ok()?;
        if state.usable().is_ok() && !self.make_room(&mut state) {
            return None;
        }
        Some(self.run(&mut state, append))
    }

    pub(super) fn append<T>(
        self: &Arc<Self>,
        append: impl FnOnce(&mut Appender<'_>) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        let mut state = self.lock();
        let mut since = None;
        while state.usable().is_ok() && !self.make_room(&mut state) {
            if since.is_none() {
                since = Some(Instant::now());
                state.stats.blocked += 1;
            }
            state = self.wait(state);
        }
        if let Some(since) = since {
            state.stats.blocked_ns += since.elapsed().as_nanos() as u64;
        }
        self.run(&mut state, append)
    }

    pub(super) fn flush(self: &Arc<Self>) -> Result<(), WriteError> {
        let mut state = self.lock();
        while state.usable().is_ok() && state.waiting.len() >= self.queue_batches {
            state = self.wait(state);
        }
        state.usable()?;
        self.cut(&mut state);
        self.until_published(state).outcome().map(drop)
    }

    /// Signatures have arrived, one after the other in `bytes`, or are lost.
    pub(super) fn resolve(self: &Arc<Self>, signatures: &[Pending], bytes: Option<&[u8]>) {
        let width = self.signature_bytes();
        for (i, signature) in signatures.iter().enumerate() {
            signature.resolve(bytes.map(|bytes| &bytes[i * width..][..width]));
        }
        self.start(&mut self.lock());
    }

    /// Bytes of a signature.
    pub(super) fn signature_bytes(&self) -> usize {
        8 * self.identity.regions as usize
    }

    pub(super) fn stats(&self) -> Stats {
        self.lock().stats
    }

    /// Publishes what is left; from here on every append fails.
    pub(super) fn close(self: &Arc<Self>) -> Result<Stats, WriteError> {
        let mut state = self.lock();
        if !state.closing {
            self.cut(&mut state);
            state.closing = true;
            // What has not arrived is lost now.
            self.start(&mut state);
            self.progress.notify_all();
        }
        self.until_published(state).outcome()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|lost| self.ended(lost))
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let state = self.progress.wait(state);
        state.unwrap_or_else(|lost| self.ended(lost))
    }

    /// A panic while a record was added may have left half of it: the capture ends there.
    fn ended<'a>(&self, lost: PoisonError<MutexGuard<'a, State>>) -> MutexGuard<'a, State> {
        let mut state = lost.into_inner();
        state.fail(invalid("adding a record failed"));
        self.state.clear_poison();
        state
    }

    /// Waits until no batch waits and none is being published.
    fn until_published<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while state.running || !state.waiting.is_empty() {
            state = self.wait(state);
        }
        state
    }

    /// Waits until none is being published.
    fn until_idle<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while state.running {
            state = self.wait(state);
        }
        state
    }

    /// Cuts the batch if it is full or old; `false` if it is full and the queue too.
    fn make_room(self: &Arc<Self>, state: &mut State) -> bool {
        let open = &state.open;
        let full = open.record_count() >= self.max_batch_records
            || open.text_bytes() >= MAX_TEXT_BYTES
            || open.signature_bytes() >= MAX_SIGNATURE_BYTES;
        if state.waiting.len() < self.queue_batches {
            if full || open.age() >= MAX_AGE {
                self.cut(state);
            }
            return true;
        }
        !full
    }

    /// Moves the open batch to the queue, if it holds anything worth a file.
    fn cut(self: &Arc<Self>, state: &mut State) {
        if state.open.record_count() == 0 && state.open.text_bytes() < MAX_TEXT_BYTES {
            return;
        }
        let spare = std::mem::take(&mut state.spare);
        let cut = state.open.cut(spare);
        if state.error.is_none() {
            state.waiting.push_back(cut);
            self.start(state);
        }
    }

    /// Starts the publishing thread, if there is work for it and it does not run.
    fn start(self: &Arc<Self>, state: &mut State) {
        if state.running || !state.first_is_complete() {
            return;
        }
        let queue = Arc::clone(self);
        match thread::start(move || queue.publish_waiting()) {
            Ok(()) => state.running = true,
            Err(source) => state.fail(CaptureError::Io {
                action: "start the writer thread for",
                path: self.publisher.directory().to_owned(),
                source,
            }),
        }
    }

    fn run<T>(
        &self,
        state: &mut State,
        append: impl FnOnce(&mut Appender<'_>) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        state.usable()?;
        append(&mut Appender {
            open: &mut state.open,
            signature_bytes: self.signature_bytes(),
        })
    }

    /// Stands in for a publishing thread that has not come to work yet.
    #[cfg(test)]
    pub(super) fn occupy(&self) {
        self.lock().running = true;
    }

    /// Body of the publishing thread.
    pub(super) fn publish_waiting(&self) {
        let mut unused = Records::default();
        let mut state = self.lock();
        state.thread = Some(ThreadId::current());
        while state.first_is_complete()
            && let Some(mut cut) = state.waiting.pop_front()
        {
            let sequence = state.stats.batches;
            drop(state);
            // Giving memory back takes time, in which nobody should wait for the lock.
            drop(std::mem::take(&mut unused));
            self.progress.notify_all();
            let published = catch_unwind(AssertUnwindSafe(|| self.publish(sequence, &mut cut)))
                .unwrap_or_else(|_| Err(invalid("the writer thread failed on a batch")));
            let mut records = cut.records;
            let (recorded, withdrawn) = (records.len(), records.withdrawn.len());
            records.clear();
            state = self.lock();
            unused = std::mem::replace(&mut state.spare, records);
            match published {
                Ok(bytes) => {
                    state.stats.batches += 1;
                    state.stats.records += recorded as u64;
                    state.stats.withdrawn += withdrawn as u64;
                    state.stats.bytes += bytes;
                }
                Err(error) => state.fail(error),
            }
        }
        state.running = false;
        drop(state);
        self.progress.notify_all();
    }

    fn publish(&self, sequence: u64, cut: &mut Cut) -> Result<u64, CaptureError> {
        let Cut {
            records, pending, ..
        } = cut;
        pending.settle(records, self.signature_bytes(), cut.lost);
        let bytes = encode(&self.identity, sequence, cut.first_tick, &cut.records);
        self.publisher.publish(&batch_file_name(sequence), &bytes)?;
        Ok(bytes.len() as u64)
    }
}

impl Quiesce for Queue {
    fn quiesce(&self) {
        let thread = self.until_idle(self.lock()).thread.take();
        if let Some(thread) = thread {
            thread.wait_until_gone();
        }
    }
}

impl State {
    fn usable(&self) -> Result<(), WriteError> {
        match &self.error {
            Some(error) => Err(WriteError::Publish(Arc::clone(error))),
            None if self.closing => Err(WriteError::Closed),
            None => Ok(()),
        }
    }

    fn outcome(&self) -> Result<Stats, WriteError> {
        match &self.error {
            Some(error) => Err(WriteError::Publish(Arc::clone(error))),
            None => Ok(self.stats),
        }
    }

    /// Whether the first waiting batch can be published.
    fn first_is_complete(&mut self) -> bool {
        let closing = self.closing;
        let first = self.waiting.front_mut();
        first.is_some_and(|cut| closing || cut.pending.are_resolved())
    }

    /// Ends the capture: later batches would leave a gap that looks like a lost file.
    fn fail(&mut self, error: CaptureError) {
        self.error.get_or_insert_with(|| Arc::new(error));
        self.waiting.clear();
    }
}

fn invalid(message: &str) -> CaptureError {
    CaptureError::Invalid(message.to_owned())
}
