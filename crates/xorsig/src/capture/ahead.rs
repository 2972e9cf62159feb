//! Batches in order, loaded by threads ahead of the one that takes them.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::error::CaptureError;
use super::load::Loaded;

type Outcome = Result<Loaded, CaptureError>;

/// Threads that load the batches of a list. Only so many batches wait or are worked on at a time,
/// so memory does not grow with the capture.
#[derive(Debug)]
pub struct Ahead {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    sequences: Vec<u64>,
    window: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Index of the next batch that a thread loads.
    next: usize,
    /// Index of the next batch that is taken; what `done` begins with.
    taken: usize,
    done: VecDeque<Option<Outcome>>,
    /// Batches that are not needed any more, for their memory.
    spent: Vec<Loaded>,
    stopped: bool,
}

impl Ahead {
    /// Starts `threads` threads for `window` batches at a time. Fewer, or none, if the system
    /// refuses them: then `None`.
    pub fn start(
        directory: &Path,
        sequences: Vec<u64>,
        threads: usize,
        window: usize,
    ) -> Option<Self> {
        let shared = Arc::new(Shared {
            directory: directory.to_owned(),
            sequences,
            window,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let spawn = |_| {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name("xorsig-reader".into());
            builder.spawn(move || shared.load_all()).ok()
        };
        let threads: Vec<_> = (0..threads).filter_map(spawn).collect();
        (!threads.is_empty()).then_some(Self { shared, threads })
    }

    /// The next batch of the list, which must not have ended, in exchange for an earlier one.
    pub fn next(&mut self, spent: Loaded) -> Outcome {
        let shared = &self.shared;
        let mut state = shared.lock();
        state.spent.push(spent);
        loop {
            if let Some(outcome) = state.done.front_mut().and_then(Option::take) {
                state.done.pop_front();
                state.taken += 1;
                shared.changed.notify_all();
                return outcome;
            }
            state = shared.wait(state);
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A thread turns its panics into the outcome of its batch.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Body of a thread.
    fn load_all(&self) {
        let mut state = self.lock();
        while !state.stopped && state.next < self.sequences.len() {
            if state.next >= state.taken + self.window {
                state = self.wait(state);
                continue;
            }
            let index = state.next;
            state.next += 1;
            state.done.push_back(None);
            let mut loaded = state.spent.pop().unwrap_or_default();
            drop(state);
            let sequence = self.sequences[index];
            let load = || {
                loaded.load(&self.directory, sequence)?;
                Ok(loaded)
            };
            let outcome = catch_unwind(AssertUnwindSafe(load))
                .unwrap_or_else(|_| Err(CaptureError::Invalid("reading a batch failed".into())));
            state = self.lock();
            // Nothing is taken before it is done, so the place of this batch is still there.
            let place = index - state.taken;
            state.done[place] = Some(outcome);
            self.changed.notify_all();
        }
    }
}
