//! The native half of the recorder: its state, and the calls that need no Python code.
//!
//! Calls with plain tensors and values are recorded here without any Python code of the recorder.
//! For arguments and results of other kinds, and while a mode of the workload is active, the
//! subclass in `opguard.core` sorts them out of the workload's sight and hands them to the same
//! code. Both share the stack of open calls, the counters, and the places of gradients.

mod access;
mod announced;
mod autograd;
mod called;
mod calls;
mod closing;
mod connect;
mod effects;
mod entry;
mod fingerprint;
mod flatten;
mod frame;
mod gradients;
mod hashing;
mod held;
mod known;
mod look;
mod modules;
mod observer;
mod opening;
mod parameters;
mod plans;
mod random;
mod reading;
mod run;
mod sink;
mod slots;
mod state;
mod steps;
mod torch;
mod values;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pyo3::exceptions::{PyBaseException, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyDict, PyList, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use closing::{Ending, Unusual};
pub use effects::Effects;
pub use frame::CallFrame;
use observer::Observer;
pub use parameters::KnownParameters;
pub use run::{caught, run};
use sink::{Row, Rows};
use state::State;

use crate::capture::fork::Process;

/// Roles of records.
mod role {
    pub const INPUT: u8 = 0;
    pub const OUTPUT: u8 = 1;
    pub const EFFECT_BEFORE: u8 = 2;
    pub const EFFECT_AFTER: u8 = 3;
    pub const GRADIENT: u8 = 4;
    pub const RANDOM_BEFORE: u8 = 5;
    pub const RANDOM_AFTER: u8 = 6;
}

/// What the training was doing when a call began.
mod phase {
    pub const FORWARD: u8 = 0;
    pub const BACKWARD: u8 = 1;
    pub const OPTIMIZER: u8 = 2;
}

/// Facts about a call.
mod flag {
    pub const RECOMPUTED: u32 = 2;
    pub const MODULE: u32 = 4;
    pub const UNINITIALISED: u32 = 8;
}

/// What recording needs that is not Python's.
pub struct Shared {
    enabled: AtomicBool,
    busy: AtomicBool,
    tensors: AtomicU64,
    thread: u64,
    process: Process,
    state: Mutex<Option<Box<State>>>,
}

/// State of a recorder, and its native path; ``opguard.core`` subclasses it.
///
/// Args:
///     writer: A ``CaptureWriter``, or an object with its methods.
///     regions: Regions per fingerprint.
///     thread: Identity of the thread to record, as ``threading.get_ident`` gives it.
///     max_nested_calls: Calls that may be recorded inside one another.
#[pyclass(frozen, subclass, weakref, module = "xorsig")]
pub struct Recorder {
    shared: Arc<Shared>,
    paused: AtomicBool,
    /// Completed steps of the run.
    step: AtomicI64,
    /// Optimizer steps that are running.
    optimizer_depth: AtomicI64,
    calls: AtomicU64,
    elsewhere: AtomicU64,
    regions: usize,
    max_nested_calls: usize,
    stack: Py<PyList>,
    writer: Py<PyAny>,
    /// Hears of backward passes, where torch's announcements can be read.
    observer: OnceLock<&'static Observer>,
}

impl Deref for Recorder {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.disconnect();
        // An observer keeps the rest; what is Python's goes here, where the GIL is held.
        let state = self
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(state);
    }
}

/// The right to record; no other call of the process records meanwhile.
struct Busy<'a>(&'a AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The state, while its lock is held.
struct Locked<'a>(MutexGuard<'a, Option<Box<State>>>);

impl Deref for Locked<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        self.0.as_ref().expect("checked when it was locked")
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("checked when it was locked")
    }
}

impl Shared {
    fn is_recorded_thread(&self) -> bool {
        // SAFETY: asks for a number and has no precondition.
        unsafe { pyo3::ffi::PyThread_get_thread_ident() as u64 == self.thread }
    }

    /// Whether anything is recorded; nothing in a forked child, where the state may be locked by a
    /// thread that is not there.
    fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed) && self.process.is_current()
    }

    /// Begins recording on this thread; `None` if this moment is not to be recorded.
    fn enter(&self) -> Option<Busy<'_>> {
        if !self.is_enabled() || !self.is_recorded_thread() {
            return None;
        }
        let free = self
            .busy
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        free.ok().map(|_| Busy(&self.busy))
    }

    fn count(&self, rows: &Rows) {
        let tensors = rows
            .rows
            .iter()
            .filter(|row| !matches!(row, Row::Value { .. }));
        self.tensors
            .fetch_add(tensors.count() as u64, Ordering::Relaxed);
    }
}

impl Recorder {
    /// Locks the state; only while busy, since the lock is not reentrant.
    ///
    /// After a panic the state may be anything, and records made from it wrong: none is made any
    /// more, and each that is missing counts as a failure.
    fn state(&self, py: Python<'_>) -> PyResult<Locked<'_>> {
        let Ok(state) = self.state.lock_py_attached(py) else {
            return Err(PyRuntimeError::new_err("the recorder has failed before"));
        };
        match &*state {
            Some(_) => Ok(Locked(state)),
            None => Err(PyValueError::new_err(
                "the recorder is not connected to torch",
            )),
        }
    }

    /// The innermost open call.
    fn top<'py>(&self, py: Python<'py>) -> Option<Bound<'py, CallFrame>> {
        let stack = self.stack.bind(py);
        let last = stack.get_item(stack.len().checked_sub(1)?).ok()?;
        last.cast_into::<CallFrame>().ok()
    }

    /// One more call is recorded.
    fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

#[pymethods]
impl Recorder {
    #[new]
    fn new(
        py: Python<'_>,
        writer: Py<PyAny>,
        regions: usize,
        thread: u64,
        max_nested_calls: usize,
    ) -> PyResult<Self> {
        let shared = Shared {
            enabled: AtomicBool::new(true),
            busy: AtomicBool::new(false),
            tensors: AtomicU64::new(0),
            thread,
            process: Process::current()?,
            state: Mutex::new(None),
        };
        Ok(Self {
            shared: Arc::new(shared),
            paused: AtomicBool::new(false),
            step: AtomicI64::new(0),
            optimizer_depth: AtomicI64::new(0),
            calls: AtomicU64::new(0),
            elsewhere: AtomicU64::new(0),
            regions,
            max_nested_calls,
            stack: PyList::empty(py).unbind(),
            writer,
            observer: OnceLock::new(),
        })
    }

    /// Sets up the native path.
    ///
    /// Args:
    ///     torch: Objects of torch and of the Python recorder, by name; see
    ///         ``opguard.core.recording.native``.
    ///
    /// Returns:
    ///     Whether tensors, what autograd keeps of them, and the gradients that torch announces are
    ///     read natively: the fields are where they should be. What is not found is read through
    ///     Python.
    fn connect(this: &Bound<'_, Self>, torch: &Bound<'_, PyDict>) -> PyResult<bool> {
        let (state, proved) = State::connected(this, torch)?;
        if let Ok(mut slot) = this.get().state.lock_py_attached(this.py()) {
            *slot = Some(Box::new(state));
        }
        Ok(proved)
    }

    /// Ends what :meth:`connect` has torch do: telling of backward passes.
    ///
    /// Returns:
    ///     Whether outputs that waited long for their gradients were forgotten.
    fn disconnect(&self) -> bool {
        self.observer.get().is_some_and(|observer| observer.end())
    }

    /// Records that a call begins, and its inputs, of any kind; only within the recorder's guard.
    ///
    /// Args:
    ///     frame: The call; on the stack from its first record on.
    ///     site: Its callsite.
    ///     callee: What is called.
    ///     args: Its positional arguments.
    ///     kwargs: Its keyword arguments.
    ///
    /// Returns:
    ///     The optimizers whose state it may change.
    fn open_call<'py>(
        &self,
        frame: &Bound<'py, CallFrame>,
        site: u32,
        callee: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.open_unusual(frame, site, callee, args, kwargs)
    }

    /// Records the outputs and effects of a call, and its end; only within the recorder's guard.
    ///
    /// Args:
    ///     frame: The call, taken from the stack already.
    ///     result: What it returned.
    ///     error: What it raised, if it did.
    ///     states: Called with the frame to record what became of the state of optimizers.
    fn close_call(
        this: &Bound<'_, Self>,
        frame: &Bound<'_, CallFrame>,
        result: &Bound<'_, PyAny>,
        error: Option<&Bound<'_, PyBaseException>>,
        states: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let ending = Ending::of(error.map_or(Ok(result), Err));
        Self::close(this, frame, &ending, Unusual::Read, states)?;
        Ok(())
    }

    /// Whether calls are recorded; never in a forked child.
    #[getter]
    fn enabled(&self) -> bool {
        self.is_enabled()
    }

    #[setter]
    fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Whether calls that begin are left out; those begun before are followed to their end.
    #[getter]
    fn paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    #[setter]
    fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
        match self.observer.get() {
            Some(observer) if paused => observer.rest(),
            Some(observer) => observer.wake(),
            None => {}
        }
    }

    /// Whether the recorder works, so that calls made meanwhile are its own.
    #[getter]
    fn busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    #[setter]
    fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Release);
    }

    /// Whether so many calls are being recorded inside one another that no more may be.
    #[getter]
    fn full(&self, py: Python<'_>) -> bool {
        self.stack.bind(py).len() >= self.max_nested_calls
    }

    /// Completed steps of the run; every call carries the number at its beginning.
    #[getter]
    pub fn step(&self) -> i64 {
        self.step.load(Ordering::Relaxed)
    }

    #[setter]
    fn set_step(&self, step: i64) {
        self.step.store(step, Ordering::Relaxed);
    }

    /// Optimizer steps that are running.
    #[getter]
    fn optimizer_depth(&self) -> i64 {
        self.optimizer_depth.load(Ordering::Relaxed)
    }

    #[setter]
    fn set_optimizer_depth(&self, depth: i64) {
        self.optimizer_depth.store(depth, Ordering::Relaxed);
    }

    /// Calls recorded so far.
    #[getter]
    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    #[setter]
    fn set_calls(&self, calls: u64) {
        self.calls.store(calls, Ordering::Relaxed);
    }

    /// Tensor records so far.
    #[getter]
    fn tensors(&self) -> u64 {
        self.tensors.load(Ordering::Relaxed)
    }

    /// Counts tensor records that Python code has made.
    fn count_tensors(&self, count: u64) {
        self.tensors.fetch_add(count, Ordering::Relaxed);
    }

    /// Calls and gradients of other threads, which were not recorded.
    #[getter]
    fn elsewhere(&self) -> u64 {
        self.elsewhere.load(Ordering::Relaxed)
    }

    #[setter]
    fn set_elsewhere(&self, elsewhere: u64) {
        self.elsewhere.store(elsewhere, Ordering::Relaxed);
    }

    /// The open calls, outermost first.
    #[getter]
    fn stack<'py>(&self, py: Python<'py>) -> Bound<'py, PyList> {
        self.stack.bind(py).clone()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.stack)?;
        visit.call(&self.writer)
    }
}
