//! The known parameters, as the Python half of the recorder uses them.

use pyo3::prelude::*;
use pyo3::types::PyString;
use pyo3::{PyTraverseError, PyVisit};

use super::effects::Effects;
use super::known::{Known, Met, Place};
use super::modules::Walk;
use super::state::{Signature, State};
use super::{not_connected, role};

/// Slot of a buffer, the buffer, and signatures by slot.
type Buffer<'py> = (String, Bound<'py, PyAny>, Vec<Signature<'py>>);

/// What the Python half uses of the known parameters; only within the recorder's guard.
#[pyclass(frozen, module = "xorsig")]
pub struct KnownParameters {
    recorder: Py<super::Recorder>,
}

impl KnownParameters {
    /// Runs `action` on the table and the state, with cleared rows, and counts what it gathered.
    pub(super) fn with<T>(
        &self,
        py: Python<'_>,
        action: impl FnOnce(&mut Known, &mut State) -> PyResult<T>,
    ) -> PyResult<T> {
        let recorder = self.recorder.get();
        let mut state = recorder.state(py).ok_or_else(not_connected)?;
        state.rows.clear();
        let mut known = std::mem::take(&mut state.known);
        let done = action(&mut known, &mut state);
        state.known = known;
        recorder.count(&state.rows);
        done
    }
}

#[pymethods]
impl KnownParameters {
    #[new]
    fn new(recorder: Py<super::Recorder>) -> Self {
        Self { recorder }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.recorder)
    }

    /// Parameters and gradients that changed since the last look.
    fn changes(&self, py: Python<'_>) -> PyResult<Effects> {
        self.with(py, |known, state| known.changes(state, py))
    }

    /// Those that share memory with one of ``tensors``, which a call has just changed.
    fn alias_changes(&self, py: Python<'_>, tensors: Vec<Bound<'_, PyAny>>) -> PyResult<Effects> {
        self.with(py, |known, state| known.alias_changes(state, py, &tensors))
    }

    /// Records the gradients of all known parameters; ``None`` where there is none.
    fn record_gradients(&self, py: Python<'_>, call: u64, role: u8) -> PyResult<()> {
        self.with(py, |known, state| {
            known.record_gradients(state, py, role)?;
            state.sink.write(py, call, &state.rows, None)
        })
    }

    /// Records a parameter of a module.
    ///
    /// Args:
    ///     call: The call.
    ///     role: Role of the record; none is made where it is ``None``.
    ///     slot: Slot of the record.
    ///     parameter: The parameter.
    ///     name: Its name in the module at hand.
    ///     holder: The module that holds it itself; ``None`` where none is known.
    ///     fresh: Whether to read the bytes again even when version and address are unchanged.
    #[expect(clippy::too_many_arguments, reason = "facts about one parameter")]
    fn record(
        &self,
        py: Python<'_>,
        call: u64,
        role: Option<u8>,
        slot: &str,
        parameter: &Bound<'_, PyAny>,
        name: &str,
        holder: Option<&Bound<'_, PyAny>>,
        fresh: bool,
    ) -> PyResult<()> {
        let field = name.rsplit('.').next().unwrap_or(name);
        let met = Met {
            name,
            owner: holder.unwrap_or(parameter),
            place: match holder {
                Some(_) => Place::Field(PyString::new(py, field).unbind()),
                None => Place::Itself,
            },
        };
        self.with(py, |known, state| {
            let reading = known.read(state, parameter, met, fresh)?;
            if let Some(role) = role {
                state.gather(py, role, slot, Some(&reading))?;
            }
            state.sink.write(py, call, &state.rows, None)
        })
    }

    /// Records the parameters and buffers of a module that keeps torch's way of naming them.
    ///
    /// Args:
    ///     call: The call.
    ///     role: Role of the records; none are made where it is ``None``.
    ///     module: The module.
    ///     prefix: Slot prefix; empty for the module that is called.
    ///     fresh: As for ``record``.
    ///     modes: Whether to record the training flags of the module and its children.
    ///     unless: Identities of tensors to leave out.
    ///
    /// Returns:
    ///     Identities of everything it holds; and of each buffer the slot, the buffer, and the
    ///     signatures by slot if they were recorded.
    #[pyo3(signature = (call, role, module, prefix, fresh, *, modes, unless))]
    #[expect(clippy::too_many_arguments, reason = "facts about one module")]
    fn record_module<'py>(
        &self,
        py: Python<'py>,
        call: u64,
        role: Option<u8>,
        module: &Bound<'py, PyAny>,
        prefix: &str,
        fresh: bool,
        modes: bool,
        unless: &Bound<'py, PyAny>,
    ) -> PyResult<(Vec<usize>, Vec<Buffer<'py>>)> {
        let walk = Walk::of(module)?;
        self.with(py, |known, state| {
            let mut identities = Vec::new();
            let mut skip = |tensor: &Bound<'py, PyAny>| {
                let identity = tensor.as_ptr() as usize;
                identities.push(identity);
                unless.contains(identity)
            };
            for held in walk.parameters {
                if skip(&held.tensor)? {
                    continue;
                }
                let met = Met {
                    name: &held.name,
                    owner: &held.holder,
                    place: Place::Field(held.field.unbind()),
                };
                let reading = known.read(state, &held.tensor, met, fresh)?;
                if let Some(role) = role {
                    let slot = format!("{prefix}param.{}", held.name);
                    state.gather(py, role, &slot, Some(&reading))?;
                }
            }
            let mut buffers = Vec::with_capacity(walk.buffers.len());
            for held in walk.buffers {
                if skip(&held.tensor)? {
                    continue;
                }
                let slot = format!("{prefix}buffer.{}", held.name);
                let mut signatures = Vec::new();
                if let Some(role) = role {
                    let reading = state.reading(&held.tensor)?;
                    state.gather(py, role, &slot, Some(&reading))?;
                    for part in reading.iter() {
                        signatures.push(part.signature_at(py, &slot)?);
                    }
                }
                buffers.push((slot, held.tensor, signatures));
            }
            if modes {
                for (name, training) in walk.modes {
                    let dot = if name.is_empty() { "" } else { "." };
                    let slot = format!("value.{prefix}training{dot}{name}");
                    let slot = state.sink.name(py, &slot)?;
                    state.rows.value(role::INPUT, slot, training.into());
                }
            }
            state.sink.write(py, call, &state.rows, None)?;
            Ok((identities, buffers))
        })
    }

    /// Records what a call did to known parameters and gradients, as far as not recorded.
    fn record_effects(
        &self,
        py: Python<'_>,
        call: u64,
        effects: &Bound<'_, Effects>,
        unless: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.with(py, |_, state| {
            for (slot, effect) in effects.get().list() {
                if !unless.contains(&slot)? {
                    let (before, after) = (effect.before.as_ref(), effect.after.as_ref());
                    state.gather_unless(py, role::EFFECT_BEFORE, &slot, before, after)?;
                    state.gather_unless(py, role::EFFECT_AFTER, &slot, after, before)?;
                }
            }
            state.sink.write(py, call, &state.rows, None)
        })
    }

    /// Records the parameters of an optimizer.
    ///
    /// Args:
    ///     call: The call.
    ///     role: Role of the records.
    ///     optimizer: Names parameters never seen by their position.
    ///     groups: Whether to record each parameter's group.
    ///
    /// Returns:
    ///     ``(name, parameter)`` of each.
    fn record_members<'py>(
        &self,
        py: Python<'py>,
        call: u64,
        role: u8,
        optimizer: &Bound<'py, PyAny>,
        groups: bool,
    ) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        self.with(py, |known, state| {
            let members = known.members(state, optimizer)?;
            for (group, name, parameter) in &members {
                // Known by now: neither owner nor place is used.
                let met = Met {
                    name,
                    owner: optimizer,
                    place: Place::Group(*group, 0),
                };
                let slot = format!("param.{name}");
                let reading = known.read(state, parameter, met, true)?;
                state.gather(py, role, &slot, Some(&reading))?;
                if groups {
                    let slot = state.sink.name(py, &format!("value.{slot}.group"))?;
                    state.rows.value(role, slot, group.to_string().into());
                }
            }
            state.sink.write(py, call, &state.rows, None)?;
            Ok(members
                .into_iter()
                .map(|(_, name, parameter)| (name, parameter))
                .collect())
        })
    }

    /// ``(name, parameter)`` of every parameter of an optimizer.
    fn members<'py>(
        &self,
        py: Python<'py>,
        optimizer: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        self.with(py, |known, state| {
            let members = known.members(state, optimizer)?;
            Ok(members
                .into_iter()
                .map(|(_, name, parameter)| (name, parameter))
                .collect())
        })
    }
}
