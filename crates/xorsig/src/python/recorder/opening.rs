//! The beginning of a call that may do anything: everything that it could read.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::called::Called;
use super::entry::{LastOwner, Place};
use super::fingerprint::Fingerprint;
use super::flatten::Found;
use super::frame::CallFrame;
use super::hashing::NumberSet;
use super::known::{Known, Met};
use super::modules::Walk;
use super::random::Digests;
use super::slots::{Slot, Slots};
use super::state::{Part, Reading, State};
use super::{Recorder, flag, role};
use crate::capture::append::Begin;
use crate::capture::pending::Pending;

/// Identities of tensors.
pub type Identities = NumberSet<usize>;

/// The bytes of an input before the call.
pub enum Before {
    /// Signature of a tensor in plain memory.
    Plain(Box<[u8]>),
    /// Of one that is read in parts.
    Parts(Reading),
}

/// A tensor that is read again after the call.
pub struct Input {
    pub slot: Slot,
    pub tensor: Py<PyAny>,
    /// Absent for what is only overwritten.
    pub before: Option<Before>,
}

impl Input {
    /// Whether it was a tensor in plain memory of this signature.
    pub fn was(&self, signature: &[u8]) -> bool {
        match &self.before {
            Some(Before::Plain(before)) => **before == *signature,
            Some(Before::Parts(_)) => self.part("").is_some_and(|part| {
                matches!(&part.signature, Some(Fingerprint::Known(known)) if *known == *signature)
            }),
            None => false,
        }
    }

    /// Whether it had a part of this fingerprint.
    pub fn had(&self, suffix: &str, signature: Option<&Fingerprint>) -> bool {
        match (&self.before, signature) {
            (Some(Before::Plain(before)), Some(Fingerprint::Known(now))) => {
                suffix.is_empty() && **before == **now
            }
            _ => self
                .part(suffix)
                .is_some_and(|part| part.signature.as_ref() == signature),
        }
    }

    /// The fingerprint that a part had, if that is still on a device.
    pub fn pending(&self, suffix: &str) -> Option<&Pending> {
        self.part(suffix).and_then(Part::pending)
    }

    fn part(&self, suffix: &str) -> Option<&Part> {
        match &self.before {
            Some(Before::Parts(parts)) => parts.iter().find(|part| part.suffix == suffix),
            _ => None,
        }
    }
}

/// What the end of a call needs of its beginning.
#[derive(Default)]
pub struct Opened {
    pub reads_only: bool,
    pub workload_code: bool,
    pub inputs: Vec<Input>,
    /// The module that the call runs.
    pub module: Option<Py<PyAny>>,
    /// The parameters and buffers of the modules involved.
    pub held: Identities,
    /// The random generators, and whether they include those of Python and numpy.
    pub random: Option<(Digests, bool)>,
}

impl Recorder {
    /// Records that a call begins, and its inputs; from the first record on it is on the stack.
    ///
    /// `walks` are what the modules involved hold, by prefix of their slots.
    pub(super) fn open<'py>(
        &self,
        state: &mut State,
        frame: &Bound<'py, CallFrame>,
        site: u32,
        called: &Called<'py>,
        found: Found<'py>,
        walks: Vec<(String, Walk<'py>)>,
    ) -> PyResult<()> {
        let py = frame.py();
        let parent = self.top(py);
        if !called.reads_only {
            let changed = state.with_known(|known, state| known.changes(state, py))?;
            if let Some(parent) = &parent {
                parent.get().found().merge(&changed);
            }
        }
        frame.get().set_site(site);
        frame.get().set_flags(called.flags);
        frame.get().set_is_step(called.is_step);
        let begin = Begin {
            parent: parent.as_ref().map_or(0, |parent| parent.get().number()),
            site,
            step: self.step(),
            phase: self.phase(state, py, called.is_step)?,
            thread: 0,
            flags: called.flags,
            callee: state.sink.name(py, &called.name)?,
        };
        state.rows.clear();
        let call = state.sink.begin(py, begin, &state.rows)?;
        frame.get().begun(call);
        self.count_call();
        self.stack.bind(py).append(frame)?;
        let within_module = parent.is_some_and(|parent| parent.get().flags() & flag::MODULE != 0);
        let opened = state.with_known(|known, state| {
            state.inputs(known, py, called, found, walks, !within_module)
        })?;
        *frame.get().opened() = Some(Box::new(opened));
        self.count(&state.rows);
        state.sink.write(py, call, &state.rows, None)
    }

    /// As [`Self::open`] for arguments of any kind; within the guard against the workload's modes.
    pub(super) fn open_unusual<'py>(
        &self,
        frame: &Bound<'py, CallFrame>,
        site: u32,
        callee: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let py = frame.py();
        let mut state = self.state(py)?;
        let state = &mut *state;
        let found = state.flatten_arguments.bind(py).call1((args, kwargs))?;
        let found = Found::from_python(&found, &mut state.slots, &state.sink)?;
        let tensors = found.tensors.iter().map(|(_, tensor)| tensor);
        let tensors = PyTuple::new(py, tensors)?;
        let optimizers = PyTuple::new(py, &found.optimizers)?;
        let called = state
            .callees
            .ask(callee, args, &tensors, optimizers.as_any())?;
        let own = called.module.iter().map(|module| (String::new(), module));
        let given = found.modules.iter();
        let given = given.map(|(slot, module)| (format!("{slot}."), module));
        let nothing = Identities::default();
        let walks = own.chain(given);
        let walks = walks.map(|(prefix, module)| {
            let walk = Walk::of(module, &state.naming, &nothing)?;
            Ok((prefix, walk))
        });
        let walks = walks.collect::<PyResult<_>>()?;
        self.open(state, frame, site, &called, found, walks)?;
        Ok(called.optimizers)
    }
}

impl State {
    /// Gathers the inputs of a call.
    fn inputs<'py>(
        &mut self,
        known: &mut Known,
        py: Python<'py>,
        called: &Called<'py>,
        mut found: Found<'py>,
        walks: Vec<(String, Walk<'py>)>,
        fresh: bool,
    ) -> PyResult<Opened> {
        let mut opened = Opened {
            reads_only: called.reads_only,
            workload_code: called.workload_code,
            module: called.module.clone().map(Bound::unbind),
            ..Opened::default()
        };
        if let Some(owner) = &called.owner {
            found.tensors.push((Slots::SELF, owner.clone()));
        }
        for (slot, tensor) in &found.tensors {
            let spelled = self.slots.spelling(*slot);
            let overwritten = called
                .overwritten
                .iter()
                .any(|start| spelled.starts_with(start));
            let before = match overwritten {
                true => None,
                false => Some(self.input(*slot, tensor)?),
            };
            if !called.reads_only {
                let (slot, tensor) = (*slot, tensor.clone().unbind());
                opened.inputs.push(Input {
                    slot,
                    tensor,
                    before,
                });
            }
        }
        // What a module held before its state is loaded is no input.
        let role = (called.name != "load_state_dict").then_some(role::INPUT);
        for (prefix, walk) in walks {
            self.module_inputs(known, py, walk, &prefix, fresh, role, &mut opened)?;
        }
        for (slot, text) in found.values {
            self.rows.value(role::INPUT, slot, text);
        }
        if called.reads_gradients {
            known.record_gradients(self, py, role::INPUT)?;
        }
        if called.random {
            let python_too = called.python_random;
            opened.random = Some((
                self.random.digests(py, &mut self.reader, python_too)?,
                python_too,
            ));
        }
        Ok(opened)
    }

    /// Gathers the record of a tensor, and keeps what tells whether it changes.
    fn input(&mut self, slot: Slot, tensor: &Bound<'_, PyAny>) -> PyResult<Before> {
        let start = self.rows.bytes.len();
        let first = self.rows.rows.len();
        if let Some(reading) = self.record(role::INPUT, slot, tensor)? {
            return Ok(Before::Parts(reading));
        }
        debug_assert_eq!(self.rows.rows.len(), first + 1);
        Ok(Before::Plain(self.rows.bytes[start..].into()))
    }

    /// Gathers what a module holds before a call.
    #[expect(clippy::too_many_arguments, reason = "facts about one module")]
    fn module_inputs(
        &mut self,
        known: &mut Known,
        py: Python<'_>,
        walk: Walk<'_>,
        prefix: &str,
        fresh: bool,
        role: Option<u8>,
        opened: &mut Opened,
    ) -> PyResult<()> {
        let mut last = LastOwner::default();
        for held in walk.parameters {
            opened.held.insert(held.tensor.as_ptr() as usize);
            let (reading, names) = known.read(self, &held.tensor, held.met(), fresh, &mut last)?;
            match role {
                Some(role) if prefix.is_empty() && names.name == held.name => {
                    self.gather_named(py, role, &names.parameter, Some(&reading), None)?;
                }
                Some(role) => {
                    let slot = format!("{prefix}param.{}", held.name);
                    self.gather(py, role, &slot, Some(&reading))?;
                }
                None => {}
            }
        }
        for held in walk.buffers {
            opened.held.insert(held.tensor.as_ptr() as usize);
            let slot = self.slots.named(&format!("{prefix}buffer.{}", held.name));
            let before = match role {
                Some(_) => Some(self.input(slot, &held.tensor)?),
                None => None,
            };
            if !opened.reads_only {
                let tensor = held.tensor.unbind();
                opened.inputs.push(Input {
                    slot,
                    tensor,
                    before,
                });
            }
        }
        for (name, training) in walk.modes {
            let dot = if name.is_empty() { "" } else { "." };
            let slot = self
                .sink
                .name(py, &format!("value.{prefix}training{dot}{name}"))?;
            self.rows.value(role::INPUT, slot, training.into());
        }
        Ok(())
    }

    /// Gathers what a module got during a call.
    pub(super) fn module_outputs(
        &mut self,
        known: &mut Known,
        py: Python<'_>,
        walk: &Walk<'_>,
        prefix: &str,
    ) -> PyResult<()> {
        let mut last = LastOwner::default();
        for held in &walk.parameters {
            let (reading, _) = known.read(self, &held.tensor, held.met(), true, &mut last)?;
            let slot = format!("{prefix}param.{}", held.name);
            self.gather(py, role::OUTPUT, &slot, Some(&reading))?;
        }
        for held in &walk.buffers {
            let reading = self.reading(&held.tensor)?;
            let slot = format!("{prefix}buffer.{}", held.name);
            self.gather(py, role::OUTPUT, &slot, Some(&reading))?;
        }
        Ok(())
    }
}

impl<'py> super::modules::Held<'py> {
    fn met(&self) -> Met<'_, 'py> {
        match &self.holder {
            Some(holder) => Met {
                name: &self.name,
                owner: holder,
                place: Place::Field(self.field.clone().unbind()),
            },
            None => Met {
                name: &self.name,
                owner: &self.tensor,
                place: Place::Itself,
            },
        }
    }
}
