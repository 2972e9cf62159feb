//! Knows when this process is a forked child.
//!
//! After a fork only the forking thread exists: a lock may be held by a thread that is gone, and
//! the writer thread is gone too. A child therefore must not touch what its parent made.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of forks between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The process that called [`Process::current`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// This process.
    pub fn current() -> Self {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            // SAFETY: `count_fork` only adds to an atomic, which is allowed in a forked child.
            // A failure (no memory) leaves forks uncounted; `abandon` still covers Python's.
            unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
        });
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether the caller runs in this process and not in a forked child of it.
    pub fn is_current(self) -> bool {
        self.0 == GENERATION.load(Ordering::Relaxed)
    }
}

extern "C" fn count_fork() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
