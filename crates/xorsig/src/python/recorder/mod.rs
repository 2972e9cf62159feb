//! The native half of the recorder: its state, and the calls that need no Python code.
//!
//! `opguard.core` records calls in Python. Most calls of a training are of one kind, though: a
//! function of torch that can only read its arguments, with plain tensors and values. Those are
//! recorded here, at a fraction of the cost and with the same records; every other call is left
//! to the subclass. Both share the stack of open calls, the counters and the gradient hooks.

mod access;
mod calls;
mod effects;
mod fingerprint;
mod flatten;
mod frame;
mod gradients;
mod known;
mod modules;
mod parameters;
mod plans;
mod reading;
mod run;
mod sink;
mod slots;
mod state;
mod torch;
mod values;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyDict, PyList, PySet};
use pyo3::{PyTraverseError, PyVisit};

use access::{Probe, TensorAccess};
pub use effects::Effects;
use fingerprint::pending_of;
pub use frame::CallFrame;
use gradients::{Accessors, Watched};
use known::Known;
pub use parameters::KnownParameters;
use plans::Plans;
use reading::Reader;
pub use run::run;
use sink::{Row, Rows, Sink};
use slots::Slots;
use state::{Signature, State};
use torch::Torch;
use values::Values;

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

/// State of a recorder, and its native path; ``opguard.core`` subclasses it.
///
/// Args:
///     writer: A ``CaptureWriter``, or an object with its methods.
///     regions: Regions per fingerprint.
///     thread: Identity of the thread to record, as ``threading.get_ident`` gives it.
///     max_nested_calls: Calls that may be recorded inside one another.
#[pyclass(frozen, subclass, module = "xorsig")]
pub struct Recorder {
    enabled: AtomicBool,
    paused: AtomicBool,
    busy: AtomicBool,
    /// Completed steps of the run.
    step: AtomicI64,
    /// Optimizer steps that are running.
    optimizer_depth: AtomicI64,
    calls: AtomicU64,
    tensors: AtomicU64,
    elsewhere: AtomicU64,
    thread: u64,
    regions: usize,
    max_nested_calls: usize,
    stack: Py<PyList>,
    writer: Py<PyAny>,
    state: Mutex<Option<Box<State>>>,
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

impl std::ops::Deref for Locked<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        self.0.as_ref().expect("checked when it was locked")
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("checked when it was locked")
    }
}

impl Recorder {
    fn is_recorded_thread(&self) -> bool {
        // SAFETY: asks for a number and has no precondition.
        unsafe { pyo3::ffi::PyThread_get_thread_ident() as u64 == self.thread }
    }

    /// Begins recording on this thread; `None` if this moment is not to be recorded.
    fn enter(&self) -> Option<Busy<'_>> {
        if !self.enabled.load(Ordering::Relaxed) || !self.is_recorded_thread() {
            return None;
        }
        let free = self
            .busy
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        free.ok().map(|_| Busy(&self.busy))
    }

    /// Locks the state; only while busy, since the lock is not reentrant.
    fn state(&self, py: Python<'_>) -> Option<Locked<'_>> {
        let state = self.state.lock_py_attached(py).ok()?;
        state.is_some().then(|| Locked(state))
    }

    /// The innermost open call.
    fn top<'py>(&self, py: Python<'py>) -> Option<Bound<'py, CallFrame>> {
        let stack = self.stack.bind(py);
        let last = stack.get_item(stack.len().checked_sub(1)?).ok()?;
        last.cast_into::<CallFrame>().ok()
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

/// The error of a use before [`Recorder::connect`].
fn not_connected() -> PyErr {
    PyValueError::new_err("the recorder is not connected to torch")
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
    ) -> Self {
        Self {
            enabled: AtomicBool::new(true),
            paused: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            step: AtomicI64::new(0),
            optimizer_depth: AtomicI64::new(0),
            calls: AtomicU64::new(0),
            tensors: AtomicU64::new(0),
            elsewhere: AtomicU64::new(0),
            thread,
            regions,
            max_nested_calls,
            stack: PyList::empty(py).unbind(),
            writer,
            state: Mutex::new(None),
        }
    }

    /// Sets up the native path.
    ///
    /// Args:
    ///     torch: Objects of torch and of the Python recorder, by name; see
    ///         ``opguard.core.recording.native``.
    ///
    /// Returns:
    ///     Whether tensors are read natively: the fields of torch's tensors are where they should
    ///     be. Otherwise every tensor is read through Python.
    fn connect(&self, py: Python<'_>, torch: &Bound<'_, PyDict>) -> PyResult<bool> {
        let get = |name: &str| -> PyResult<Bound<'_, PyAny>> {
            torch
                .get_item(name)?
                .ok_or_else(|| PyValueError::new_err(format!("{name} is missing")))
        };
        let types: [Py<PyAny>; 2] = get("tensor_types")?.extract()?;
        let access = {
            let probes = get("probes")?
                .extract::<Vec<(Bound<'_, PyAny>, usize, u64)>>()?
                .into_iter()
                .map(|(tensor, implementation, keys)| Probe {
                    tensor,
                    implementation,
                    keys,
                })
                .collect::<Vec<_>>();
            let exact = probes
                .iter()
                .all(|p| p.tensor.get_type_ptr().cast() == types[0].as_ptr());
            let size = types[0].getattr(py, "__basicsize__")?.extract(py)?;
            let library = get("library")?.extract::<String>()?;
            exact
                .then(|| TensorAccess::prove(&library, size, &probes))
                .flatten()
        };
        let proved = access.is_some();
        let reader = get("reader")?.unbind();
        let state = State {
            sink: Sink::new(self.writer.bind(py).clone()),
            reader: Reader::new(access, types, self.regions, reader.clone_ref(py)),
            slots: Slots::new(),
            values: Values::new(
                get("value_types")?.extract()?,
                get("single_types")?.extract()?,
                get("value_text")?.unbind(),
            ),
            plans: Plans::new(get("callee_types")?.extract()?, get("classify")?.unbind()),
            torch: Torch::new(
                Accessors::new(py, get("properties")?.extract()?)?,
                get("modes")?.extract()?,
                get("backward")?.unbind(),
                get("digests")?.unbind(),
            ),
            watched: Watched::default(),
            known: Known::default(),
            rows: Rows::default(),
            deep: get("deep")?.cast_into::<PySet>()?.unbind(),
            phases: get("phases")?.extract()?,
            python_reader: reader,
        };
        if let Ok(mut slot) = self.state.lock_py_attached(py) {
            *slot = Some(Box::new(state));
        }
        Ok(proved)
    }

    /// Records a tensor of any kind; only within the recorder's guard.
    fn record_tensor(
        &self,
        py: Python<'_>,
        call: u64,
        role: u8,
        slot: &str,
        tensor: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let mut state = self.state(py).ok_or_else(not_connected)?;
        state.rows.clear();
        let reading = state.reading(tensor)?;
        state.gather(py, role, slot, Some(&reading))?;
        self.count(&state.rows);
        state.sink.write(py, call, &state.rows, None)
    }

    /// Records tensors of any kind; only within the recorder's guard.
    ///
    /// Args:
    ///     call: The call.
    ///     role: Role of the records.
    ///     tensors: Slots and tensors.
    ///
    /// Returns:
    ///     Signatures by slot, one per record.
    fn record_tensors<'py>(
        &self,
        py: Python<'py>,
        call: u64,
        role: u8,
        tensors: Vec<(String, Bound<'py, PyAny>)>,
    ) -> PyResult<Vec<Signature<'py>>> {
        let mut state = self.state(py).ok_or_else(not_connected)?;
        state.rows.clear();
        let mut signatures = Vec::with_capacity(tensors.len());
        for (slot, tensor) in tensors {
            let reading = state.reading(&tensor)?;
            state.gather(py, role, &slot, Some(&reading))?;
            for part in reading.iter() {
                signatures.push(part.signature_at(py, &slot)?);
            }
        }
        self.count(&state.rows);
        state.sink.write(py, call, &state.rows, None)?;
        Ok(signatures)
    }

    /// Records tensors whose bytes are not those of an earlier reading, as outputs.
    ///
    /// Where both are still on a device, the record is withdrawn if they turn out equal.
    ///
    /// Args:
    ///     call: The call.
    ///     tensors: Slots and tensors.
    ///     before: Their signatures by slot; one without counts as changed.
    ///
    /// Returns:
    ///     The tensors that changed, or may have.
    fn record_changed<'py>(
        &self,
        py: Python<'py>,
        call: u64,
        tensors: Vec<(String, Bound<'py, PyAny>)>,
        before: &Bound<'py, PyDict>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut state = self.state(py).ok_or_else(not_connected)?;
        state.rows.clear();
        let mut changed = Vec::new();
        for (slot, tensor) in tensors {
            let reading = state.reading(&tensor)?;
            let first = state.rows.rows.len();
            for part in reading.iter() {
                let part_slot = format!("{slot}{}", part.suffix);
                let earlier = before.get_item(&part_slot)?;
                let same = earlier
                    .as_ref()
                    .is_some_and(|earlier| match &part.signature {
                        None => earlier.is_none(),
                        Some(signature) => signature.equals(earlier),
                    });
                if !same {
                    let id = state.sink.name(py, &part_slot)?;
                    let unless = earlier.as_ref().and_then(pending_of);
                    state.rows.part(role::OUTPUT, id, part, unless.as_ref());
                }
            }
            if state.rows.rows.len() > first {
                changed.push(tensor);
            }
        }
        self.count(&state.rows);
        state.sink.write(py, call, &state.rows, None)?;
        Ok(changed)
    }

    /// Records the gradient of an output when backward reaches it.
    ///
    /// Args:
    ///     call: The forward call.
    ///     slot: Slot of the output, e.g. ``out[0]``; that of the gradient is ``grad.out[0]``.
    ///     tensor: The output, outside functorch transforms.
    fn watch(
        this: &Bound<'_, Self>,
        call: u64,
        slot: &str,
        tensor: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let Some(mut state) = this.get().state(this.py()) else {
            return Ok(());
        };
        let state = &mut *state;
        if let Some(node) = state.torch.accessors.node(tensor)? {
            let slot = state.slots.gradient_named(this.py(), slot, &state.sink)?;
            let (watched, accessors) = (&mut state.watched, &state.torch.accessors);
            watched.watch(this, accessors, &node, tensor, (call, slot))?;
        }
        Ok(())
    }

    /// Whether calls are recorded.
    #[getter]
    fn enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
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
    fn step(&self) -> i64 {
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

    #[setter]
    fn set_tensors(&self, tensors: u64) {
        self.tensors.store(tensors, Ordering::Relaxed);
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
