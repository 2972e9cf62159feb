//! What recording a call changes: caches, tables, and the records that are gathered.

use std::collections::HashSet;
use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PySet};

use super::calls::Native;
use super::fingerprint::Fingerprint;
use super::flatten::Flattener;
use super::gradients::Watched;
use super::known::Known;
use super::plans::Plans;
use super::reading::Reader;
use super::sink::{End, Row, Rows, Sink};
use super::slots::{Slot, Slots};
use super::torch::Torch;
use super::values::Values;
use super::{Recorder, role};
use crate::capture::pending::Pending;

/// A part of a tensor as recorded.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// What continues the tensor's slot.
    pub(super) suffix: String,
    pub(super) layout: u32,
    pub(super) signature: Option<Fingerprint>,
    pub(super) note: u32,
}

/// Slot and signature of a record, for Python.
pub type Signature<'py> = (String, Option<Bound<'py, PyAny>>);

impl Part {
    /// Its fingerprint, if that is still on a device.
    pub(super) fn pending(&self) -> Option<&Pending> {
        match &self.signature {
            Some(Fingerprint::Pending(pending)) => Some(pending),
            _ => None,
        }
    }

    pub(super) fn signature_at<'py>(
        &self,
        py: Python<'py>,
        slot: &str,
    ) -> PyResult<Signature<'py>> {
        let signature = self.signature.as_ref();
        let signature = signature.map(|signature| signature.to_python(py));
        Ok((format!("{slot}{}", self.suffix), signature.transpose()?))
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
    pub(super) watched: Watched,
    pub(super) known: Known,
    pub(super) rows: Rows,
    /// Callsites that are left to Python; the set may grow.
    pub(super) deep: Py<PySet>,
    /// Phases that are recorded.
    pub(super) phases: HashSet<u8>,
    /// Python's reader of tensors of any kind.
    pub(super) python_reader: Py<PyAny>,
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

    /// Gathers the record of a tensor, or of each of its parts.
    pub(super) fn record(
        &mut self,
        role: u8,
        slot: Slot,
        tensor: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
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
            return Ok(());
        }
        let reading = self.read_with_python(tensor)?;
        let slot = self.slots.spelling(slot).to_owned();
        self.gather(py, role, &slot, Some(&reading))
    }

    /// The fingerprint of a tensor of any kind.
    pub(super) fn reading(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<Reading> {
        let mut signature = Vec::new();
        match self.reader.read(tensor, &self.sink, &mut signature)? {
            Some(layout) => Ok(Arc::new([Part {
                suffix: String::new(),
                layout,
                signature: Some(Fingerprint::Known(signature)),
                note: 0,
            }])),
            None => self.read_with_python(tensor),
        }
    }

    pub(super) fn read_with_python(&self, tensor: &Bound<'_, PyAny>) -> PyResult<Reading> {
        let py = tensor.py();
        let parts = self
            .python_reader
            .call_method1(py, intern!(py, "read"), ("", tensor))?;
        let parts = parts.bind(py).cast::<PyList>()?.iter().map(|part| {
            let (suffix, (layout, signature, note)) =
                part.extract::<(String, (u32, Option<Fingerprint>, u32))>()?;
            Ok(Part {
                suffix,
                layout,
                signature,
                note,
            })
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
        self.gather_unless(py, role, slot, reading, None)
    }

    /// As [`Self::gather`], and where a part and that of `same` are still on a device, its record
    /// is withdrawn if they turn out equal.
    pub(super) fn gather_unless(
        &mut self,
        py: Python<'_>,
        role: u8,
        slot: &str,
        reading: Option<&Reading>,
        same: Option<&Reading>,
    ) -> PyResult<()> {
        let Some(parts) = reading else {
            let slot = self.sink.name(py, slot)?;
            self.rows.value(role, slot, "None".into());
            return Ok(());
        };
        for (i, part) in parts.iter().enumerate() {
            let other = same.and_then(|same| same.get(i));
            let unless = other
                .filter(|other| other.layout == part.layout)
                .and_then(Part::pending);
            let slot = match part.suffix.as_str() {
                "" => self.sink.name(py, slot)?,
                suffix => self.sink.name(py, &format!("{slot}{suffix}"))?,
            };
            self.rows.part(role, slot, part, unless);
        }
        Ok(())
    }

    /// Writes a gradient under each of its places; `false` if it is not plain memory.
    pub(super) fn gradient(
        &mut self,
        recorder: &Recorder,
        gradient: &Bound<'_, PyAny>,
        places: &[(u64, u32)],
    ) -> PyResult<bool> {
        let py = gradient.py();
        self.rows.clear();
        let read = self
            .reader
            .read(gradient, &self.sink, &mut self.rows.bytes)?;
        let Some(layout) = read else {
            return Ok(false);
        };
        let signature = Some((0, self.rows.bytes.len() as u32));
        for &(call, slot) in places {
            self.rows.rows.clear();
            self.rows.rows.push(Row::Tensor {
                role: role::GRADIENT,
                slot,
                layout,
                signature,
                note: 0,
            });
            recorder.count(&self.rows);
            self.sink.write(py, call, &self.rows, None)?;
        }
        Ok(true)
    }

    /// Writes what is gathered, what became of the random generators, and the end of a call.
    pub(super) fn end(
        &mut self,
        recorder: &Recorder,
        py: Python<'_>,
        native: &Native<'_>,
        end: End,
    ) -> PyResult<()> {
        if let Some(before) = &native.random {
            let after = self.torch.random(py)?;
            for (slot, text) in before.iter() {
                let now = after.get_item(&slot)?;
                if now
                    .as_ref()
                    .is_none_or(|now| !now.eq(&text).unwrap_or(false))
                {
                    let slot = self.sink.name(py, slot.extract()?)?;
                    let before = text.extract::<String>()?;
                    let after = now.map_or_else(|| Ok("None".to_owned()), |now| now.extract())?;
                    self.rows.value(role::RANDOM_BEFORE, slot, before.into());
                    self.rows.value(role::RANDOM_AFTER, slot, after.into());
                }
            }
        }
        recorder.count(&self.rows);
        let call = native.frame.get().number();
        self.sink.write(py, call, &self.rows, Some(end))
    }
}
