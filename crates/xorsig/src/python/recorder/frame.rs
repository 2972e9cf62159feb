//! A recorded call while it runs.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use super::effects::Effects;
use super::hashing::NumberSet;
use super::opening::Opened;

/// A call in progress: what its end, and the calls inside it, need to know.
///
/// Calls that the Python half records add what it needs in a subclass.
///
/// Args:
///     optimizer_depth: Optimizer steps that are running when the call begins.
#[pyclass(frozen, subclass, module = "xorsig")]
pub struct CallFrame {
    call: AtomicU64,
    site: AtomicU32,
    flags: AtomicU32,
    deep: AtomicBool,
    is_step: AtomicBool,
    optimizer_depth: AtomicI64,
    effects: Effects,
    /// Ids of the slots of parameters that an optimizer's step has recorded already.
    recorded: Mutex<NumberSet<u32>>,
    opened: Mutex<Option<Box<Opened>>>,
}

impl CallFrame {
    /// A frame of a call that is about to begin.
    pub fn beginning(optimizer_depth: i64) -> Self {
        Self {
            call: AtomicU64::new(0),
            site: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            deep: AtomicBool::new(false),
            is_step: AtomicBool::new(false),
            optimizer_depth: AtomicI64::new(optimizer_depth),
            effects: Effects::default(),
            recorded: Mutex::default(),
            opened: Mutex::default(),
        }
    }

    /// Number of the call in its capture; 0 until its beginning is recorded.
    pub fn number(&self) -> u64 {
        self.call.load(Ordering::Relaxed)
    }

    /// The call has begun under this number.
    pub fn begun(&self, call: u64) {
        self.call.store(call, Ordering::Relaxed);
    }

    /// Changes of known parameters and gradients during the call.
    pub fn found(&self) -> &Effects {
        &self.effects
    }

    /// Optimizer steps that were running when the call began.
    pub fn depth(&self) -> i64 {
        self.optimizer_depth.load(Ordering::Relaxed)
    }

    /// Notes that a step has recorded the parameter of this slot.
    pub fn note_recorded(&self, slot: u32) {
        lock(&self.recorded).insert(slot);
    }

    /// Ids of the slots that a step has recorded.
    pub fn recorded(&self) -> MutexGuard<'_, NumberSet<u32>> {
        lock(&self.recorded)
    }

    /// What the end of the call needs of its beginning.
    pub fn opened(&self) -> MutexGuard<'_, Option<Box<Opened>>> {
        lock(&self.opened)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pymethods]
impl CallFrame {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyAny>, _kwargs: Option<&Bound<'_, PyAny>>) -> Self {
        Self::beginning(0)
    }

    /// Number of the call in its capture; 0 until its beginning is recorded.
    #[getter]
    fn call(&self) -> u64 {
        self.number()
    }

    #[setter]
    fn set_call(&self, call: u64) {
        self.begun(call);
    }

    /// Number of the callsite; a call that no callsite stands for has that of the call around it.
    #[getter]
    fn site(&self) -> u32 {
        self.site.load(Ordering::Relaxed)
    }

    #[setter]
    pub fn set_site(&self, site: u32) {
        self.site.store(site, Ordering::Relaxed);
    }

    /// Call flags.
    #[getter]
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    #[setter]
    pub fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// Whether the operators inside are recorded.
    #[getter]
    pub fn deep(&self) -> bool {
        self.deep.load(Ordering::Relaxed)
    }

    #[setter]
    fn set_deep(&self, deep: bool) {
        self.deep.store(deep, Ordering::Relaxed);
    }

    /// Whether the call makes a step of an optimizer and nothing else.
    #[getter]
    fn is_step(&self) -> bool {
        self.is_step.load(Ordering::Relaxed)
    }

    #[setter]
    pub fn set_is_step(&self, is_step: bool) {
        self.is_step.store(is_step, Ordering::Relaxed);
    }

    /// Optimizer steps that were running when the call began.
    #[getter]
    fn optimizer_depth(&self) -> i64 {
        self.depth()
    }

    #[setter]
    fn set_optimizer_depth(&self, depth: i64) {
        self.optimizer_depth.store(depth, Ordering::Relaxed);
    }

    /// Adds changes, keeping for each slot the value before the first of them.
    fn merge_effects(&self, found: &Bound<'_, Effects>) {
        self.effects.merge(found.get());
    }

    /// Changes of known parameters and gradients during the call, by slot.
    #[getter]
    fn effects(&self) -> Effects {
        self.effects.clone()
    }
}
