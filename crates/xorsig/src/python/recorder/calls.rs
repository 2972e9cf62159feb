//! Calls that are recorded without the Python recorder.

use std::sync::TryLockError;
use std::sync::atomic::Ordering;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::closing::{Ending, NOT_FOLLOWED, Unusual};
use super::flatten::Found;
use super::frame::CallFrame;
use super::modules::Walk;
use super::opening::{Identities, Opened};
use super::slots::Slots;
use super::state::State;
use super::{Recorder, phase, role};
use crate::capture::append::Begin;

impl Recorder {
    /// Records the inputs of a call.
    ///
    /// `None`, and nothing recorded, if the Python half is to look at it: it holds more than plain
    /// tensors and values, a mode of the workload is active, or it is not to be recorded at all.
    pub fn begin_native<'py>(
        this: &Bound<'py, Self>,
        site: u32,
        callee: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Option<Bound<'py, CallFrame>>> {
        let py = this.py();
        let recorder = this.get();
        let Some(_busy) = recorder.enter() else {
            return Ok(None);
        };
        let mut state = recorder.state(py)?;
        let state = &mut *state;
        let deep = state.deep.bind(py);
        if !state.native
            || (!deep.is_empty() && deep.contains(site)?)
            || recorder.paused.load(Ordering::Relaxed)
            || recorder.stack.bind(py).len() >= recorder.max_nested_calls
            || state.torch.has_modes(py)?
        {
            return Ok(None);
        }
        let depth = recorder.optimizer_depth.load(Ordering::Relaxed);
        let plan = state
            .plans
            .find(callee, |item| state.reader.is_tensor(item))?;
        if let Some((plan, owner)) = plan
            && plan.allows(args.len(), kwargs)?
        {
            let phase = recorder.phase(state, py, false)?;
            if !state.phases.contains(&phase) {
                return Ok(None);
            }
            let Some(mut found) = state.arguments(args, kwargs)? else {
                return Ok(None);
            };
            found
                .tensors
                .extend(owner.map(|owner| (Slots::SELF, owner)));
            let frame = Bound::new(py, CallFrame::beginning(depth))?;
            if plan.random {
                let random = Some((state.random.digests(py, &mut state.reader, false)?, false));
                let opened = Opened {
                    reads_only: true,
                    random,
                    ..Opened::default()
                };
                *frame.get().opened() = Some(Box::new(opened));
            }
            recorder.open_pure(state, &frame, site, phase, plan.name, &found)?;
            return Ok(Some(frame));
        }
        if state.known.is_unusual() {
            return Ok(None);
        }
        let Some(found) = state.arguments(args, kwargs)? else {
            return Ok(None);
        };
        let called = state.callees.plain(callee)?;
        let usual = called.optimizers.is_empty()
            && called
                .owner
                .as_ref()
                .is_none_or(|owner| state.reader.is_tensor(owner));
        if !usual
            || !state
                .phases
                .contains(&recorder.phase(state, py, called.is_step)?)
        {
            return Ok(None);
        }
        let mut walks = Vec::new();
        if let Some(module) = &called.module {
            if !state.naming.is_torchs(module)? {
                return Ok(None);
            }
            let walk = Walk::of(module, &state.naming, &Identities::default())?;
            if !walk.all(|tensor| state.reader.is_tensor(tensor)) {
                return Ok(None);
            }
            walks.push((String::new(), walk));
        }
        let frame = Bound::new(py, CallFrame::beginning(depth))?;
        match recorder.open(state, &frame, site, &called, found, walks) {
            Ok(()) => Ok(Some(frame)),
            Err(error) => {
                if frame.get().number() != 0 {
                    // Begun in the capture but not followed: end it, or it would adopt later calls.
                    recorder.pop(py, frame.as_any())?;
                    state.rows.clear();
                    let error = state.sink.name(py, NOT_FOLLOWED)?;
                    let end = super::sink::End {
                        status: 1,
                        flags: 0,
                        error,
                    };
                    state
                        .sink
                        .write(py, frame.get().number(), &state.rows, Some(end))?;
                }
                Err(error)
            }
        }
    }

    /// Records that a call begins which can only read its arguments.
    fn open_pure(
        &self,
        state: &mut State,
        frame: &Bound<'_, CallFrame>,
        site: u32,
        phase: u8,
        callee: u32,
        found: &Found<'_>,
    ) -> PyResult<()> {
        let py = frame.py();
        state.rows.clear();
        for (slot, tensor) in &found.tensors {
            state.record(role::INPUT, *slot, tensor)?;
        }
        for (slot, text) in &found.values {
            state.rows.value(role::INPUT, *slot, text.clone());
        }
        let begin = Begin {
            parent: self.top(py).map_or(0, |parent| parent.get().number()),
            site,
            step: self.step(),
            phase,
            thread: 0,
            flags: 0,
            callee,
        };
        frame.get().begun(state.sink.begin(py, begin, &state.rows)?);
        self.count(&state.rows);
        self.count_call();
        self.stack.bind(py).append(frame)
    }

    /// Records the outputs of a call, or that it raised.
    pub fn finish_native(
        this: &Bound<'_, Self>,
        frame: &Bound<'_, CallFrame>,
        ending: &Ending<'_, '_>,
    ) -> PyResult<()> {
        let py = this.py();
        let recorder = this.get();
        let Some(left_deep) = recorder.pop(py, frame.as_any())? else {
            return Ok(());
        };
        if left_deep {
            this.call_method0(intern!(py, "_left_deep_calls"))?;
        }
        let depth = frame.get().depth();
        recorder.optimizer_depth.store(depth, Ordering::Relaxed);
        // Where a thread of the autograd engine records meanwhile, Python waits for it.
        if let Some(_busy) = recorder.enter()
            && Self::close(this, frame, ending, Unusual::Leave, None)?
        {
            return Ok(());
        }
        let (result, error) = match ending {
            Ending::Returned(result) => (Some(*result), None),
            Ending::Raised(error) => (None, Some(*error)),
        };
        this.call_method1(intern!(py, "_finish_unusual"), (frame, result, error))?;
        Ok(())
    }

    /// Records a gradient under each of the places that it belongs to.
    pub fn on_gradient(
        this: &Bound<'_, Self>,
        gradient: &Bound<'_, PyAny>,
        places: impl Iterator<Item = (u64, u32)> + Clone,
    ) -> PyResult<()> {
        let py = this.py();
        let recorder = this.get();
        if !recorder.is_enabled() {
            return Ok(());
        }
        if recorder.is_recorded_thread() {
            if let Some(_busy) = recorder.enter() {
                let mut state = recorder.state(py)?;
                if state.gradient(recorder, gradient, places.clone())? {
                    return Ok(());
                }
            } else if matches!(recorder.state.try_lock(), Err(TryLockError::WouldBlock)) {
                // This thread holds the lock: a finalizer of the workload ran while it records.
                return Ok(());
            }
            // Where a thread of the autograd engine records meanwhile, Python waits for it.
        }
        let places = {
            let state = recorder.state(py)?;
            let places = places.map(|(call, slot)| (call, state.slots.gradient(slot)));
            places.collect::<Vec<_>>()
        };
        this.call_method1(intern!(py, "_on_gradient"), (gradient, places))?;
        Ok(())
    }

    /// The phase of a call that begins now.
    pub(super) fn phase(&self, state: &State, py: Python<'_>, is_step: bool) -> PyResult<u8> {
        if is_step || self.optimizer_depth.load(Ordering::Relaxed) > 0 {
            return Ok(phase::OPTIMIZER);
        }
        let backward = state.torch.in_backward(py)?;
        Ok(if backward {
            phase::BACKWARD
        } else {
            phase::FORWARD
        })
    }

    /// Removes a frame and those above it from the stack; `None` if it is not there.
    ///
    /// Tells whether operators were recorded in one of those above.
    fn pop(&self, py: Python<'_>, frame: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
        // A generator that was abandoned, or an exception past inner calls, leaves frames behind.
        let stack = self.stack.bind(py);
        let length = stack.len();
        let Some(position) = (0..length)
            .rev()
            .find(|&i| stack.get_item(i).is_ok_and(|item| item.is(frame)))
        else {
            return Ok(None);
        };
        let is_deep = |i| {
            let above = stack.get_item(i).ok();
            above.is_some_and(|f| f.cast::<CallFrame>().is_ok_and(|f| f.get().deep()))
        };
        let left_deep = (position + 1..length).any(is_deep);
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
            Ok(Some(left_deep))
        }
    }
}

impl State {
    /// What the arguments of a call hold; `None` if that is not plain.
    fn arguments<'py>(
        &mut self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Option<Found<'py>>> {
        let mut found = Found::default();
        let mut flattener = self.flattener();
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
        Ok(Some(found))
    }
}
