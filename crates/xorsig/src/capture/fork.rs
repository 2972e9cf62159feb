//! Forks: the writer's thread is gone before one, and a child knows that it is one.
//!
//! After a fork only the forking thread exists in the child: locks may be held there by threads
//! that are gone. A child therefore must not touch what its parent made ([`Process`]). And
//! CPython warns, from 3.12 on, where a process that has several threads forks; a writer would
//! make single-threaded programs warn. So every live writer publishes what waits and lets its
//! thread end before the fork ([`before_forks`]).
//!
//! `pthread_atfork` covers every fork of the process, whichever library asks for it.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Number of forks between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// What is told before this process forks.
static LIVE: Mutex<Live> = Mutex::new(Vec::new());
type Live = Vec<Weak<dyn Quiesce>>;

thread_local! {
    /// `LIVE`, locked by the forking thread from before the fork until after it, in the parent
    /// and in the child: otherwise another thread could hold it in the child for ever.
    static HELD: Cell<Option<MutexGuard<'static, Live>>> = const { Cell::new(None) };
}

/// Something with a thread that can end for the moment of a fork.
pub trait Quiesce: Send + Sync {
    /// Returns when no thread of it exists; the next work starts another.
    fn quiesce(&self);
}

/// The process that called [`Process::current`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// This process.
    ///
    /// # Errors
    /// The system has no memory to tell of forks.
    pub fn current() -> io::Result<Self> {
        static REGISTERED: OnceLock<i32> = OnceLock::new();
        let status = *REGISTERED.get_or_init(|| {
            // SAFETY: the three functions have the signature of a handler and do not unwind.
            unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) }
        });
        match status {
            0 => Ok(Self(GENERATION.load(Ordering::Relaxed))),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Whether the caller runs in this process and not in a forked child of it.
    pub fn is_current(self) -> bool {
        self.0 == GENERATION.load(Ordering::Relaxed)
    }
}

/// Tells `object`, as long as it lives, of every fork of this process.
pub fn before_forks(object: Weak<dyn Quiesce>) {
    let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    live.retain(|known| known.strong_count() > 0);
    live.push(object);
}

extern "C" fn prepare() {
    let live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    for object in live.iter().filter_map(Weak::upgrade) {
        object.quiesce();
    }
    // A thread that is ending has no such storage any more; it does not fork.
    let _ = HELD.try_with(|held| held.set(Some(live)));
}

extern "C" fn in_parent() {
    let _ = HELD.try_with(Cell::take);
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    if let Ok(Some(mut live)) = HELD.try_with(Cell::take) {
        live.clear();
    }
}
