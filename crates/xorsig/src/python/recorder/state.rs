//! What recording a call changes: caches, tables, and the records that are gathered.

use std::ffi::c_void;
use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PySet};

use super::autograd::Fields;
use super::called::Callees;
use super::effects::Name;
use super::fingerprint::Fingerprint;
use super::flatten::Flattener;
use super::gradients::Hooked;
use super::hashing::NumberSet;
use super::known::Known;
use super::modules::Naming;
use super::observer::Observer;
use super::plans::Plans;
use super::random::Random;
use super::reading::Reader;
use super::sink::{Row, Rows, Sink, append};
use super::slots::{Slot, Slots};
use super::torch::Torch;
use super::values::Values;
use super::{Recorder, Shared, phase};
use crate::capture::pending::Pending;
use crate::capture::writer::WriteError;

/// A part of a tensor as recorded.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// What continues the tensor's slot.
    pub(super) suffix: String,
    pub(super) layout: u32,
    pub(super) signature: Option<Fingerprint>,
    pub(super) note: u32,
}

impl Part {
    /// Its fingerprint, if that is still on a device.
    pub(super) fn pending(&self) -> Option<&Pending> {
        self.signature.as_ref().and_then(Fingerprint::pending)
    }

    /// The reading of a tensor that is read as a whole.
    pub(super) fn whole(layout: u32, signature: &[u8]) -> Reading {
        Arc::new([Self {
            suffix: String::new(),
            layout,
            signature: Some(Fingerprint::Known(signature.to_vec())),
            note: 0,
        }])
    }
}

/// A tensor as recorded; most have one part.
pub type Reading = Arc<[Part]>;

/// Everything that recording a call changes.
pub struct State {
    pub(super) sink: Sink,
    pub(super) reader: Reader,
    pub(super) slots: Slots,
    pub(super) values: Values,
    pub(super) plans: Plans,
    pub(super) torch: Torch,
    pub(super) hooked: Hooked,
    pub(super) known: Known,
    pub(super) random: Random,
    pub(super) rows: Rows,
    /// The text of an absent tensor.
    pub(super) none: Arc<str>,
    /// Room for one signature.
    pub(super) scratch: Vec<u8>,
    /// Whether calls are recorded without the Python half where they can be.
    pub(super) native: bool,
    /// Callsites that are left to Python; the set may grow.
    pub(super) deep: Py<PySet>,
    /// Phases that are recorded.
    pub(super) phases: NumberSet<u8>,
    /// Python's reader of tensors of any kind.
    pub(super) python_reader: Py<PyAny>,
    /// `torch.Tensor`.
    pub(super) tensor_type: Py<PyAny>,
    /// torch's methods that name what a module holds; a class with others is asked by Python.
    pub(super) naming: Naming,
    /// Facts about callees that may do anything.
    pub(super) callees: Callees,
    /// Python's `flatten_arguments(args, kwargs)`.
    pub(super) flatten_arguments: Py<PyAny>,
    /// Python's `flatten_result(result)`.
    pub(super) flatten_result: Py<PyAny>,
    /// Python's `plain_text(value)`.
    pub(super) plain_text: Py<PyAny>,
}

impl State {
    pub(super) fn flattener(&mut self) -> Flattener<'_> {
        Flattener {
            slots: &mut self.slots,
            values: &mut self.values,
            reader: &self.reader,
            sink: &self.sink,
        }
    }

    /// Runs `action` on the known parameters and the rest of the state.
    pub(super) fn with_known<T>(
        &mut self,
        action: impl FnOnce(&mut Known, &mut Self) -> PyResult<T>,
    ) -> PyResult<T> {
        let mut known = std::mem::take(&mut self.known);
        let done = action(&mut known, self);
        self.known = known;
        done
    }

    /// Gathers the record of a tensor, or of each of its parts: then the reading comes back.
    pub(super) fn record(
        &mut self,
        role: u8,
        slot: Slot,
        tensor: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Reading>> {
        let py = tensor.py();
        let start = self.rows.bytes.len();
        let read = self.reader.read(tensor, &self.sink, &mut self.rows.bytes)?;
        if let Some(layout) = read {
            let signature = Some((start as u32, self.rows.bytes.len() as u32));
            self.rows.rows.push(Row::Tensor {
                role,
                slot: self.slots.tensor_id(py, slot, &self.sink)?,
                layout,
                signature,
                note: 0,
            });
            return Ok(None);
        }
        let reading = self.read_with_python(tensor)?;
        let slot = self.slots.spelling(slot).to_owned();
        self.gather(py, role, &slot, Some(&reading))?;
        Ok(Some(reading))
    }

    /// The fingerprint of a tensor of any kind.
    pub(super) fn reading(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<Reading> {
        self.scratch.clear();
        match self.reader.read(tensor, &self.sink, &mut self.scratch)? {
            Some(layout) => Ok(Part::whole(layout, &self.scratch)),
            None => self.read_with_python(tensor),
        }
    }

    /// A reading of a tensor's metadata alone.
    pub(super) fn described(&self, tensor: &Bound<'_, PyAny>, reason: &str) -> PyResult<Reading> {
        let described = self
            .python_reader
            .bind(tensor.py())
            .call_method1(intern!(tensor.py(), "describe"), (tensor, reason))?;
        Ok(Arc::new([part(String::new(), described.extract()?)]))
    }

    pub(super) fn read_with_python(&self, tensor: &Bound<'_, PyAny>) -> PyResult<Reading> {
        let py = tensor.py();
        let parts = self
            .python_reader
            .call_method1(py, intern!(py, "read"), ("", tensor))?;
        let parts = parts.bind(py).cast::<PyList>()?.iter().map(|part| {
            let (suffix, read) = part.extract::<(String, PythonReading)>()?;
            Ok(self::part(suffix, read))
        });
        parts.collect::<PyResult<Vec<_>>>().map(Arc::from)
    }

    /// Gathers the records of a reading; an absent tensor is the value `None`.
    pub(super) fn gather(
        &mut self,
        py: Python<'_>,
        role: u8,
        slot: &str,
        reading: Option<&Reading>,
    ) -> PyResult<()> {
        let Some(parts) = reading else {
            let slot = self.sink.name(py, slot)?;
            self.rows.value(role, slot, Arc::clone(&self.none));
            return Ok(());
        };
        self.gather_parts(py, role, slot, parts, None)
    }

    fn gather_parts(
        &mut self,
        py: Python<'_>,
        role: u8,
        slot: &str,
        parts: &[Part],
        same: Option<&Reading>,
    ) -> PyResult<()> {
        for (i, part) in parts.iter().enumerate() {
            let slot = match part.suffix.as_str() {
                "" => self.sink.name(py, slot)?,
                suffix => self.sink.name(py, &format!("{slot}{suffix}"))?,
            };
            self.rows.part(role, slot, part, unless(part, same, i));
        }
        Ok(())
    }

    /// As [`Self::gather`] for a slot that is interned, and where a part and that of `same` are
    /// still on a device, its record is withdrawn if they turn out equal.
    pub(super) fn gather_named(
        &mut self,
        py: Python<'_>,
        role: u8,
        slot: &Name,
        reading: Option<&Reading>,
        same: Option<&Reading>,
    ) -> PyResult<()> {
        match reading.map(|parts| &**parts) {
            Some([part]) if part.suffix.is_empty() => {
                let unless = unless(part, same, 0);
                self.rows.part(role, slot.id, part, unless);
                Ok(())
            }
            None => {
                self.rows.value(role, slot.id, Arc::clone(&self.none));
                Ok(())
            }
            Some(parts) => self.gather_parts(py, role, &slot.text, parts, same),
        }
    }

    /// Waits for the gradient of an output, if backward passes are recorded.
    pub(super) fn watch(
        &mut self,
        recorder: &Bound<'_, Recorder>,
        call: u64,
        slot: Slot,
        tensor: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if !self.phases.contains(&phase::BACKWARD) {
            return Ok(());
        }
        let py = tensor.py();
        let fields = self.reader.fields(tensor)?;
        let gets_gradients = match fields {
            Some(fields) if fields.meta.is_null() => false,
            Some(fields) if fields.node.is_null() => self.torch.accessors.requires_grad(tensor)?,
            Some(_) => true,
            None => {
                let watchable = intern!(py, "is_watchable");
                let asked = self.python_reader.call_method1(py, watchable, (tensor,))?;
                asked.is_truthy(py)?
            }
        };
        if !gets_gradients {
            return Ok(());
        }
        let observer = recorder.get().observer.get().copied();
        // SAFETY: the tensor is alive, and autograd keeps something of it.
        let is_current = |fields: &Fields, observer: &Observer| unsafe {
            !fields.node.is_null() && observer.announcements().is_current(fields)
        };
        let mut known = observer.zip(fields).filter(|(o, f)| is_current(f, o));
        let mut node = None;
        if known.is_none() {
            // That may make the node of a view anew.
            node = self.torch.accessors.node(tensor)?;
            if node.is_none() {
                return Ok(());
            }
            known = observer.zip(self.reader.fields(tensor)?);
        }
        let heard = known.and_then(|(observer, fields)| {
            let node = self.reader.node(&fields, observer.announcements());
            node.map(|node| (observer, node))
        });
        if let Some((observer, (node, output))) = heard {
            let slot = self.slots.gradient_id(py, slot, &self.sink)?;
            observer.watch(node, (output, call, slot));
            return Ok(());
        }
        let Some(node) = node else {
            return Ok(());
        };
        let slot = self.slots.gradient_id(py, slot, &self.sink)?;
        let place = (self.torch.accessors.output_number(tensor)?, call, slot);
        let key = match self.reader.node_key(tensor)? {
            Some(key) => key,
            None => {
                let number = node.call_method0(intern!(py, "_sequence_nr"))?;
                (number.extract()?, node.get_type_ptr() as usize)
            }
        };
        self.hooked.hook(recorder, &node, key, place)
    }

    /// Writes a gradient under each of its places; `false` if it is not plain memory.
    pub(super) fn gradient(
        &mut self,
        recorder: &Shared,
        gradient: &Bound<'_, PyAny>,
        places: impl Iterator<Item = (u64, u32)>,
    ) -> PyResult<bool> {
        let py = gradient.py();
        self.rows.clear();
        let out = &mut self.rows.bytes;
        let Some(layout) = self.reader.read(gradient, &self.sink, out)? else {
            return Ok(false);
        };
        for (call, slot) in places {
            self.rows.only_gradient(slot, layout);
            recorder.count(&self.rows);
            self.sink.write(py, call, &self.rows, None)?;
        }
        Ok(true)
    }

    /// As [`Self::gradient`], of an implementation and without the GIL; `false` also if its like was
    /// not met before, or if the records go to an object of Python.
    ///
    /// # Safety
    /// The implementation is that of a tensor, which is alive and which the caller holds.
    pub(super) unsafe fn gradient_at(
        &mut self,
        recorder: &Shared,
        gradient: *mut c_void,
        places: impl Iterator<Item = (u64, u32)>,
    ) -> Result<bool, WriteError> {
        self.rows.clear();
        let Sink::Writer(writer) = &self.sink else {
            return Ok(false);
        };
        let out = &mut self.rows.bytes;
        // SAFETY: forwarded.
        let Some(layout) = (unsafe { self.reader.read_met(gradient, usize::MAX, out) }) else {
            return Ok(false);
        };
        for (call, slot) in places {
            self.rows.only_gradient(slot, layout);
            recorder.count(&self.rows);
            writer
                .get()
                .append_without_gil(|batch| append(batch, call, &self.rows))?;
        }
        Ok(true)
    }
}

/// What withdraws the record of a part if it turns out equal: part `i` of `same`, while that is still
/// on a device.
fn unless<'a>(part: &Part, same: Option<&'a Reading>, i: usize) -> Option<&'a Pending> {
    let other = same.and_then(|same| same.get(i));
    let other = other.filter(|other| other.layout == part.layout);
    other.and_then(Part::pending)
}

/// Layout, signature and note, as Python's reader gives them.
type PythonReading = (u32, Option<Fingerprint>, u32);

fn part(suffix: String, (layout, signature, note): PythonReading) -> Part {
    Part {
        suffix,
        layout,
        signature,
        note,
    }
}
