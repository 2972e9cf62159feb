//! Calls that are recorded without the Python recorder.

use std::sync::atomic::Ordering;

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{ffi, intern};

use super::flatten::Found;
use super::frame::CallFrame;
use super::sink::End;
use super::slots::Slots;
use super::state::State;
use super::{Recorder, role};
use crate::capture::append::Begin;

const FORWARD: u8 = 0;
const BACKWARD: u8 = 1;
const OPTIMIZER: u8 = 2;
const RECOMPUTED: u32 = 2;
/// How `torch.utils.checkpoint` ends a recomputation early.
const STOP_RECOMPUTATION: &str = "_StopRecomputationError";

/// A natively recorded call while it runs.
pub struct Native<'py> {
    pub(super) frame: Bound<'py, CallFrame>,
    pub(super) random: Option<Bound<'py, PyDict>>,
    optimizer_depth: i64,
}

impl Recorder {
    /// Records the inputs of a call that can only read its arguments.
    ///
    /// `None`, and nothing recorded, if the call may be of another kind.
    pub fn begin_native<'py>(
        this: &Bound<'py, Self>,
        site: u32,
        callee: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Option<Native<'py>>> {
        let py = this.py();
        let recorder = this.get();
        let Some(_busy) = recorder.enter() else {
            return Ok(None);
        };
        let Some(mut state) = recorder.state(py) else {
            return Ok(None);
        };
        let state = &mut *state;
        let deep = state.deep.bind(py);
        if (!deep.is_empty() && deep.contains(site)?)
            || recorder.paused.load(Ordering::Relaxed)
            || recorder.stack.bind(py).len() >= recorder.max_nested_calls
        {
            return Ok(None);
        }
        let Some((plan, owner)) = state
            .plans
            .find(callee, |item| state.reader.is_tensor(item))?
        else {
            return Ok(None);
        };
        if !plan.allows(args.len(), kwargs)? || state.torch.has_modes(py)? {
            return Ok(None);
        }
        let optimizer_depth = recorder.optimizer_depth.load(Ordering::Relaxed);
        let phase = if optimizer_depth > 0 {
            OPTIMIZER
        } else if state.torch.in_backward(py)? {
            BACKWARD
        } else {
            FORWARD
        };
        if !state.phases.contains(&phase) {
            return Ok(None);
        }
        let mut found = Found::default();
        let mut flattener = state.flattener();
        for (index, item) in args.iter().enumerate() {
            let slot = flattener.slots.argument(index);
            if !flattener.flatten(&item, slot, 0, &mut found)? {
                return Ok(None);
            }
        }
        for (key, item) in kwargs.into_iter().flatten() {
            let slot = flattener.slots.keyword(key.extract()?);
            if !flattener.flatten(&item, slot, 0, &mut found)? {
                return Ok(None);
            }
        }
        if let Some(owner) = owner {
            found.tensors.push((Slots::SELF, owner));
        }
        state.rows.clear();
        for (slot, tensor) in &found.tensors {
            state.record(role::INPUT, *slot, tensor)?;
        }
        for (slot, text) in found.values {
            state.rows.value(role::INPUT, slot, text);
        }
        let parent = match recorder.top(py) {
            Some(frame) => frame.get().number(),
            None => 0,
        };
        let begin = Begin {
            parent,
            site,
            step: recorder.step.load(Ordering::Relaxed),
            phase,
            thread: 0,
            flags: 0,
            callee: plan.name,
        };
        let random = match plan.random {
            true => Some(state.torch.random(py)?),
            false => None,
        };
        let call = state.sink.begin(py, begin, &state.rows)?;
        recorder.count(&state.rows);
        recorder.calls.fetch_add(1, Ordering::Relaxed);
        let frame = Bound::new(py, CallFrame::begun(call, 0))?;
        recorder.stack.bind(py).append(&frame)?;
        Ok(Some(Native {
            frame,
            random,
            optimizer_depth,
        }))
    }

    /// Records the outputs of a call, or that it raised.
    pub fn finish_native(
        this: &Bound<'_, Self>,
        native: &Native<'_>,
        result: Result<&Bound<'_, PyAny>, &Bound<'_, PyBaseException>>,
    ) -> PyResult<()> {
        let py = this.py();
        let recorder = this.get();
        if !recorder.pop(py, native.frame.as_any())? {
            return Ok(());
        }
        let depth = native.optimizer_depth;
        recorder.optimizer_depth.store(depth, Ordering::Relaxed);
        let Some(_busy) = recorder.enter() else {
            return Ok(());
        };
        let call = native.frame.get().number();
        let effects = native.frame.get().found();
        let effects = (!effects.is_empty()).then(|| effects.clone());
        let mut end = End::default();
        let mut unusual = None;
        {
            let Some(mut state) = recorder.state(py) else {
                return Ok(());
            };
            let state = &mut *state;
            state.rows.clear();
            match result {
                Ok(result) => {
                    if !Self::outputs(this, state, call, result)? {
                        state.rows.clear();
                        unusual = Some(result);
                    }
                }
                Err(error) => {
                    let name = error.get_type().name()?;
                    let name = name.to_str()?;
                    if name == STOP_RECOMPUTATION {
                        end.flags = RECOMPUTED;
                    } else {
                        end.status = 1;
                        end.error = state.sink.name(py, name)?;
                    }
                }
            }
            if unusual.is_none() && effects.is_none() {
                return state.end(recorder, py, native, end);
            }
            recorder.count(&state.rows);
            state.sink.write(py, call, &state.rows, None)?;
        }
        // The Python recorder uses the same state: the lock is free here.
        if let Some(result) = unusual {
            this.call_method1(intern!(py, "_native_results"), (call, result))?;
        }
        if let Some(effects) = effects {
            this.call_method1(intern!(py, "_native_effects"), (call, effects))?;
        }
        let Some(mut state) = recorder.state(py) else {
            return Ok(());
        };
        state.rows.clear();
        state.end(recorder, py, native, end)
    }

    /// Gathers the records of a result; `false` if it holds anything unusual.
    fn outputs(
        this: &Bound<'_, Self>,
        state: &mut State,
        call: u64,
        result: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let py = this.py();
        let mut found = Found::default();
        let mut flattener = state.flattener();
        if !flattener.flatten(result, Slots::OUT, 0, &mut found)? {
            return Ok(false);
        }
        for (_, tensor) in &found.tensors {
            if state.reader.plain(tensor)?.is_none() {
                return Ok(false);
            }
        }
        for (slot, tensor) in &found.tensors {
            state.record(role::OUTPUT, *slot, tensor)?;
            if !state.phases.contains(&BACKWARD) {
                continue;
            }
            if let Some(node) = state.torch.accessors.node(tensor)? {
                let slot = state.slots.gradient_id(py, *slot, &state.sink)?;
                let (watched, accessors) = (&mut state.watched, &state.torch.accessors);
                watched.watch(this, accessors, &node, tensor, (call, slot))?;
            }
        }
        for (slot, text) in found.values {
            state.rows.value(role::OUTPUT, slot, text);
        }
        Ok(true)
    }

    /// Records a gradient under each of the places that it belongs to.
    pub fn on_gradient(
        this: &Bound<'_, Self>,
        gradient: &Bound<'_, PyAny>,
        places: &[(u64, u32)],
    ) -> PyResult<()> {
        let py = this.py();
        let recorder = this.get();
        if recorder.is_recorded_thread() {
            let Some(_busy) = recorder.enter() else {
                return Ok(());
            };
            if let Some(mut state) = recorder.state(py)
                && state.gradient(recorder, gradient, places)?
            {
                return Ok(());
            }
        }
        let places = {
            let state = recorder.state(py);
            let spelled = |slot| state.as_ref().map(|state| state.slots.gradient(slot));
            let places = places
                .iter()
                .map(|&(call, slot)| (call, spelled(slot).unwrap_or_default()));
            places.collect::<Vec<_>>()
        };
        this.call_method1(intern!(py, "_on_gradient"), (gradient, places))?;
        Ok(())
    }

    /// Removes a frame and those above it from the stack; `false` if it is not there.
    fn pop(&self, py: Python<'_>, frame: &Bound<'_, PyAny>) -> PyResult<bool> {
        // A generator that was abandoned, or an exception past inner calls, leaves frames behind.
        let stack = self.stack.bind(py);
        let length = stack.len();
        let Some(position) = (0..length)
            .rev()
            .find(|&i| stack.get_item(i).is_ok_and(|item| item.is(frame)))
        else {
            return Ok(false);
        };
        // SAFETY: the list is alive and the slice lies in it.
        let done = unsafe {
            ffi::PyList_SetSlice(
                stack.as_ptr(),
                position as ffi::Py_ssize_t,
                length as ffi::Py_ssize_t,
                std::ptr::null_mut(),
            )
        };
        if done != 0 {
            Err(PyErr::fetch(py))
        } else {
            Ok(true)
        }
    }
}
