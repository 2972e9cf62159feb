//! A recorded call while it runs.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use pyo3::prelude::*;

use super::effects::Effects;

/// A call in progress: what the calls inside it need to know.
///
/// The recorder's own calls add what they need in a subclass.
#[pyclass(frozen, subclass, module = "xorsig")]
pub struct CallFrame {
    call: AtomicU64,
    flags: AtomicU32,
    deep: AtomicBool,
    effects: Effects,
}

impl CallFrame {
    /// A frame of a call that has begun.
    pub fn begun(call: u64, flags: u32) -> Self {
        Self {
            call: AtomicU64::new(call),
            flags: AtomicU32::new(flags),
            deep: AtomicBool::new(false),
            effects: Effects::default(),
        }
    }

    /// Number of the call in its capture.
    pub fn number(&self) -> u64 {
        self.call.load(Ordering::Relaxed)
    }

    /// Changes of known parameters and gradients during the call.
    pub fn found(&self) -> &Effects {
        &self.effects
    }
}

#[pymethods]
impl CallFrame {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyAny>, _kwargs: Option<&Bound<'_, PyAny>>) -> Self {
        Self::begun(0, 0)
    }

    /// Number of the call in its capture; 0 until its beginning is recorded.
    #[getter]
    fn call(&self) -> u64 {
        self.number()
    }

    #[setter]
    fn set_call(&self, call: u64) {
        self.call.store(call, Ordering::Relaxed);
    }

    /// Call flags.
    #[getter]
    fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    #[setter]
    fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// Whether the operators inside are recorded.
    #[getter]
    fn deep(&self) -> bool {
        self.deep.load(Ordering::Relaxed)
    }

    #[setter]
    fn set_deep(&self, deep: bool) {
        self.deep.store(deep, Ordering::Relaxed);
    }

    /// Changes of known parameters and gradients during the call, by slot.
    #[getter]
    fn effects(&self) -> Effects {
        self.effects.clone()
    }

    /// Adds changes, keeping for each slot the value before the first of them.
    fn merge_effects(&self, found: &Bound<'_, Effects>) {
        self.effects.merge(found.get());
    }
}
