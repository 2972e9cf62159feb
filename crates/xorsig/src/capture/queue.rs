//! The bounded queue between the appending threads and the publishing thread.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::append::{Appender, Open};
use super::batch_file_name;
use super::encode::{Identity, encode};
use super::error::CaptureError;
use super::publish::Publisher;
use super::records::Records;
use super::writer::{Options, Stats, WriteError};

/// A batch is cut when its oldest record is older than this as another arrives.
const MAX_AGE: Duration = Duration::from_secs(1);
/// A batch is cut when its new names hold this many bytes.
const MAX_NAME_BYTES: usize = 16 << 20;

/// A batch that waits for the publishing thread.
struct Cut {
    first_tick: u64,
    records: Records,
}

#[derive(Default)]
struct State {
    open: Open,
    waiting: VecDeque<Cut>,
    /// Whether the thread works on a batch that it took from `waiting`.
    publishing: bool,
    closing: bool,
    error: Option<Arc<CaptureError>>,
    stats: Stats,
}

/// The lock, its two conditions, and what never changes.
pub(super) struct Queue {
    state: Mutex<State>,
    /// A batch was cut, or the writer is closing.
    work: Condvar,
    /// The thread took or finished a batch.
    progress: Condvar,
    identity: Identity,
    created: Instant,
    max_batch_records: usize,
    queue_batches: usize,
}

impl Queue {
    pub(super) fn new(options: &Options) -> Self {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            state: Mutex::default(),
            work: Condvar::new(),
            progress: Condvar::new(),
            identity: Identity {
                capture_id: options.capture_id,
                rank: options.rank,
                regions: options.regions,
                created_unix_ns: unix.as_nanos() as u64,
            },
            created: Instant::now(),
            max_batch_records: options.max_batch_records,
            queue_batches: options.queue_batches,
        }
    }

    pub(super) fn try_append<T>(
        &self,
        append: impl FnOnce(&mut Appender<'_>) -> Result<T, WriteError>,
    ) -> Option<Result<T, WriteError>> {
        let mut state = self.state.try_lock().ok()?;
        if state.usable().is_ok() && !self.make_room(&mut state) {
            return None;
        }
        Some(self.run(&mut state, append))
    }

    pub(super) fn append<T>(
        &self,
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

    pub(super) fn flush(&self) -> Result<(), WriteError> {
        let mut state = self.lock();
        while state.usable().is_ok() && state.waiting.len() >= self.queue_batches {
            state = self.wait(state);
        }
        state.usable()?;
        self.cut(&mut state);
        while state.error.is_none() && (state.publishing || !state.waiting.is_empty()) {
            state = self.wait(state);
        }
        state.outcome().map(drop)
    }

    pub(super) fn stats(&self) -> Stats {
        self.lock().stats
    }

    /// Hands over what is left; from here on every append fails.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        if !state.closing {
            self.cut(&mut state);
            state.closing = true;
            self.work.notify_one();
            self.progress.notify_all();
        }
    }

    /// The final counts, once the thread has ended.
    pub(super) fn outcome(&self) -> Result<Stats, WriteError> {
        self.lock().outcome()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.progress
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the batch if it is full or old; `false` if it is full and the queue too.
    fn make_room(&self, state: &mut State) -> bool {
        let open = &state.open;
        let full =
            open.records.len() >= self.max_batch_records || open.name_bytes >= MAX_NAME_BYTES;
        let old = || {
            open.oldest
                .is_some_and(|oldest| oldest.elapsed() >= MAX_AGE)
        };
        if state.waiting.len() < self.queue_batches {
            if full || old() {
                self.cut(state);
            }
            return true;
        }
        !full
    }

    /// Moves the open batch to the queue, if it holds anything worth a file.
    fn cut(&self, state: &mut State) {
        let open = &mut state.open;
        if open.records.is_empty() && open.name_bytes < MAX_NAME_BYTES {
            return;
        }
        let first_tick = std::mem::replace(&mut open.tick_before, open.tick) + 1;
        let records = std::mem::take(&mut open.records);
        open.name_bytes = 0;
        open.oldest = None;
        if state.error.is_none() {
            state.waiting.push_back(Cut {
                first_tick,
                records,
            });
            self.work.notify_one();
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
            created: self.created,
            signature_bytes: 8 * self.identity.regions as usize,
        })
    }

    /// Body of the publishing thread.
    pub(super) fn publish_until_closed(&self, publisher: &Publisher) {
        for sequence in 0.. {
            let mut state = self.lock();
            let cut = loop {
                if let Some(cut) = state.waiting.pop_front() {
                    break cut;
                }
                if state.closing {
                    return;
                }
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            };
            state.publishing = true;
            drop(state);
            self.progress.notify_all();
            let published =
                catch_unwind(AssertUnwindSafe(|| self.publish(publisher, sequence, &cut)))
                    .unwrap_or_else(|_| Err(invalid("the writer thread failed on a batch")));
            let mut state = self.lock();
            state.publishing = false;
            match published {
                Ok(bytes) => {
                    state.stats.batches += 1;
                    state.stats.records += cut.records.len() as u64;
                    state.stats.bytes += bytes;
                }
                Err(error) => {
                    // Later batches would leave a gap that looks like a lost file.
                    state.error = Some(Arc::new(error));
                    state.waiting.clear();
                }
            }
            let failed = state.error.is_some();
            drop(state);
            self.progress.notify_all();
            if failed {
                return;
            }
        }
    }

    fn publish(
        &self,
        publisher: &Publisher,
        sequence: u64,
        cut: &Cut,
    ) -> Result<u64, CaptureError> {
        let bytes = encode(&self.identity, sequence, cut.first_tick, &cut.records)
            .map_err(|error| invalid(&format!("batch {sequence} cannot be encoded: {error}")))?;
        publisher.publish(&batch_file_name(sequence), &bytes)?;
        Ok(bytes.len() as u64)
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
}

fn invalid(message: &str) -> CaptureError {
    CaptureError::Invalid(message.to_owned())
}
