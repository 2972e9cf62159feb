//! The end of a call: its outputs, and everything else that it changed.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;

use super::flatten::Found;
use super::frame::CallFrame;
use super::modules::Walk;
use super::opening::{Identities, Opened};
use super::sink::End;
use super::slots::Slots;
use super::state::State;
use super::{Recorder, flag, role};

/// How `torch.utils.checkpoint` ends a recomputation early: no failure.
const STOP_RECOMPUTATION: &str = "_StopRecomputationError";
/// Stands for the end of a call whose inputs could not be recorded.
pub const NOT_FOLLOWED: &str = "_NotFollowed";

/// How a call ended.
pub enum Ending<'a, 'py> {
    /// With a result.
    Returned(&'a Bound<'py, PyAny>),
    /// With an exception.
    Raised(&'a Bound<'py, PyBaseException>),
}

impl<'a, 'py> Ending<'a, 'py> {
    /// Of what a callee gave or raised.
    pub fn of(ending: Result<&'a Bound<'py, PyAny>, &'a Bound<'py, PyBaseException>>) -> Self {
        ending.map_or_else(Self::Raised, Self::Returned)
    }
}

/// Who reads what a result holds beside plain tensors and values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unusual {
    /// Nobody: the call is left as it is.
    Leave,
    /// Python, within the guard against the workload's modes.
    Read,
}

impl Recorder {
    /// Records the outputs and effects of a call, and its end.
    ///
    /// Args:
    ///     frame: The call, taken from the stack already.
    ///     ending: Its end.
    ///     unusual: What to do with a result that is not plain.
    ///     states: Called between the records of what else changed, to record what became of the
    ///         state of optimizers.
    ///
    /// Returns:
    ///     `false`, and nothing recorded, if the end was to be left.
    pub(super) fn close(
        this: &Bound<'_, Self>,
        frame: &Bound<'_, CallFrame>,
        ending: &Ending<'_, '_>,
        unusual: Unusual,
        states: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let (py, recorder, call) = (this.py(), this.get(), frame.get());
        let mut locked = recorder.state(py)?;
        let mut state = &mut *locked;
        // None of a call that is not followed to its end.
        let mut opened = call.opened();
        let reads_only = opened.as_ref().is_none_or(|opened| opened.reads_only);
        // A call that may do anything may have entered a mode of the workload.
        if unusual == Unusual::Leave && !reads_only && state.torch.has_modes(py)? {
            return Ok(false);
        }
        let result = match ending {
            Ending::Raised(_) => Found::default(),
            Ending::Returned(result) => match state.result(result, unusual)? {
                Some(found) => found,
                None => return Ok(false),
            },
        };
        let grown = match &*opened {
            Some(opened) if !opened.reads_only => {
                match state.grown(py, opened, &result, unusual)? {
                    Some(grown) => grown,
                    None => return Ok(false),
                }
            }
            _ => Vec::new(),
        };
        let opened = opened.take().map(|opened| *opened);
        let plain = Opened {
            reads_only: true,
            ..Opened::default()
        };
        let opened = opened.unwrap_or(plain);
        state.rows.clear();
        if !opened.reads_only {
            state.changed_inputs(py, call, &opened)?;
        }
        state.outputs(this, call, &opened, &result)?;
        if !opened.reads_only {
            state.what_changed(py, call, &grown)?;
        }
        if let Some(states) = states {
            recorder.count(&state.rows);
            state.sink.write(py, call.number(), &state.rows, None)?;
            state.rows.clear();
            // It uses the same state.
            drop(locked);
            states.call1((frame,))?;
            locked = recorder.state(py)?;
            state = &mut *locked;
        }
        state.effects(py, call)?;
        if let Some(around) = recorder.top(py) {
            around.get().found().merge(call.found());
        }
        if let Some((before, python_too)) = &opened.random {
            let after = state.random.digests(py, &mut state.reader, *python_too)?;
            for (slot, digest) in before {
                let now = after.iter().find(|(known, _)| known == slot);
                let now = now.map(|(_, digest)| digest);
                if now != Some(digest) {
                    let slot = state.sink.name(py, slot)?;
                    let after = now.map_or_else(|| "None".to_owned(), super::random::Digest::text);
                    state
                        .rows
                        .value(role::RANDOM_BEFORE, slot, digest.text().into());
                    state.rows.value(role::RANDOM_AFTER, slot, after.into());
                }
            }
        }
        let mut end = End::default();
        if let Ending::Raised(error) = ending {
            let name = error.get_type().name()?;
            let name = name.to_str()?;
            if name == STOP_RECOMPUTATION {
                end.flags = flag::RECOMPUTED;
            } else {
                end.status = 1;
                end.error = state.sink.name(py, name)?;
            }
        }
        recorder.count(&state.rows);
        state
            .sink
            .write(py, call.number(), &state.rows, Some(end))?;
        Ok(true)
    }
}

impl State {
    /// What a result holds; `None` if that is not plain and is to be left.
    fn result<'py>(
        &mut self,
        result: &Bound<'py, PyAny>,
        unusual: Unusual,
    ) -> PyResult<Option<Found<'py>>> {
        let py = result.py();
        let mut found = Found::default();
        if self
            .flattener()
            .flatten(result, Slots::OUT, 0, &mut found)?
        {
            let mut plain = true;
            for (_, tensor) in &found.tensors {
                plain &= self.reader.plain(tensor)?.is_some();
            }
            if plain || unusual == Unusual::Read {
                return Ok(Some(found));
            }
        }
        if unusual == Unusual::Leave {
            return Ok(None);
        }
        let found = self.flatten_result.bind(py).call1((result,))?;
        Found::from_python(&found, &mut self.slots, &self.sink).map(Some)
    }

    /// Gathers the inputs whose bytes are no longer those before the call.
    ///
    /// Where both are still on a device, the record is withdrawn if they turn out equal.
    fn changed_inputs(
        &mut self,
        py: Python<'_>,
        call: &CallFrame,
        opened: &Opened,
    ) -> PyResult<()> {
        let mut changed = Vec::new();
        for input in &opened.inputs {
            let tensor = input.tensor.bind(py);
            let first = self.rows.rows.len();
            let start = self.rows.bytes.len();
            if let Some(reading) = self.record(role::OUTPUT, input.slot, tensor)? {
                self.rows.rows.truncate(first);
                self.rows.bytes.truncate(start);
                let spelled = self.slots.spelling(input.slot).to_owned();
                for part in reading.iter() {
                    if input.had(&part.suffix, part.signature.as_ref()) {
                        continue;
                    }
                    let slot = format!("{spelled}{}", part.suffix);
                    let slot = self.sink.name(py, &slot)?;
                    let unless = input.pending(&part.suffix);
                    self.rows.part(role::OUTPUT, slot, part, unless);
                }
            } else if input.was(&self.rows.bytes[start..]) {
                self.rows.rows.truncate(first);
                self.rows.bytes.truncate(start);
            }
            if self.rows.rows.len() > first {
                changed.push(tensor.clone());
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        self.with_known(|known, state| known.alias_changes(state, py, &changed, call.found()))
    }

    /// Gathers the result, and waits for its gradients.
    fn outputs(
        &mut self,
        recorder: &Bound<'_, Recorder>,
        call: &CallFrame,
        opened: &Opened,
        result: &Found<'_>,
    ) -> PyResult<()> {
        let py = recorder.py();
        let unwritten = call.flags() & flag::UNINITIALISED != 0;
        for (slot, tensor) in &result.tensors {
            if unwritten {
                let reason = "uninitialised memory";
                let reading = self.described(tensor, reason)?;
                let slot = self.slots.spelling(*slot).to_owned();
                self.gather(py, role::OUTPUT, &slot, Some(&reading))?;
            } else {
                self.record(role::OUTPUT, *slot, tensor)?;
            }
            self.watch(recorder, call.number(), *slot, tensor)?;
        }
        if !opened.workload_code {
            for (slot, text) in &result.values {
                self.rows.value(role::OUTPUT, *slot, text.clone());
            }
        }
        Ok(())
    }

    /// What modules that the call gave or filled hold now, by prefix of their slots; `None` if some
    /// of it, or of the known parameters, is not plain and is to be left.
    fn grown<'py>(
        &self,
        py: Python<'py>,
        opened: &Opened,
        result: &Found<'py>,
        unusual: Unusual,
    ) -> PyResult<Option<Vec<(String, Walk<'py>)>>> {
        let mut grown = Vec::new();
        for (slot, module) in &result.modules {
            let walk = Walk::of(module, &self.naming, &Identities::default())?;
            grown.push((format!("{slot}."), walk));
        }
        if let Some(module) = &opened.module {
            // Resized or lazily made parameters.
            let walk = Walk::of(module.bind(py), &self.naming, &opened.held)?;
            grown.push((String::new(), walk));
        }
        let plain = || {
            grown
                .iter()
                .all(|(_, walk)| walk.all(|t| self.reader.is_tensor(t)))
        };
        if unusual == Unusual::Leave && (self.known.is_unusual() || !plain()) {
            return Ok(None);
        }
        Ok(Some(grown))
    }

    /// Gathers what modules got during the call, and notes what became of known parameters.
    fn what_changed(
        &mut self,
        py: Python<'_>,
        call: &CallFrame,
        grown: &[(String, Walk<'_>)],
    ) -> PyResult<()> {
        self.with_known(|known, state| {
            let changed = known.changes(state, py)?;
            if call.flags() & flag::UNINITIALISED != 0 {
                return Ok(());
            }
            for (prefix, walk) in grown {
                state.module_outputs(known, py, walk, prefix)?;
            }
            call.found().merge(&changed);
            Ok(())
        })
    }

    /// Gathers what the call did to known parameters and gradients, as far as not recorded.
    fn effects(&mut self, py: Python<'_>, call: &CallFrame) -> PyResult<()> {
        let recorded = call.recorded();
        call.found().each(|effect| {
            if !recorded.contains(&effect.slot.id) {
                let (before, after) = (effect.before.as_ref(), effect.after.as_ref());
                self.gather_named(py, role::EFFECT_BEFORE, &effect.slot, before, after)?;
                self.gather_named(py, role::EFFECT_AFTER, &effect.slot, after, before)?;
            }
            Ok(())
        })
    }
}
