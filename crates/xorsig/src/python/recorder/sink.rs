//! Where records go: a capture writer, or any object with its methods.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::super::capture::CaptureWriter;
use super::super::pending::PendingSignature;
use super::fingerprint::Fingerprint;
use super::role;
use super::state::Part;
use crate::capture::append::{Begin, LayoutText};
use crate::capture::pending::Pending;
use crate::capture::records::TensorRow;

/// Receives names, layouts and records.
pub enum Sink {
    /// The native writer: a batch of records takes its lock once.
    Writer(Py<CaptureWriter>),
    /// Anything with the same methods.
    Object(Py<PyAny>),
}

/// A record of a call that is not written yet.
#[derive(Clone, Debug)]
pub enum Row {
    /// A tensor; its signature is a range of [`Rows::bytes`].
    Tensor {
        role: u8,
        slot: u32,
        layout: u32,
        signature: Option<(u32, u32)>,
        note: u32,
    },
    /// A tensor whose signature is still on a device.
    Pending {
        role: u8,
        slot: u32,
        layout: u32,
        signature: Pending,
        unless: Option<Pending>,
    },
    /// A value.
    Value { role: u8, slot: u32, text: Arc<str> },
}

/// End of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    pub status: u8,
    pub flags: u32,
    pub error: u32,
}

/// Records of one call, gathered so that they are written under one lock.
#[derive(Debug, Default)]
pub struct Rows {
    pub rows: Vec<Row>,
    pub bytes: Vec<u8>,
}

impl Rows {
    /// Forgets the records and keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.bytes.clear();
    }

    /// Adds the record of a part of a tensor, which is withdrawn if it turns out as `unless`.
    pub fn part(&mut self, role: u8, slot: u32, part: &Part, unless: Option<&Pending>) {
        let layout = part.layout;
        let signature = match &part.signature {
            Some(Fingerprint::Pending(signature)) => {
                self.rows.push(Row::Pending {
                    role,
                    slot,
                    layout,
                    signature: signature.clone(),
                    unless: unless.cloned(),
                });
                return;
            }
            Some(Fingerprint::Known(bytes)) => {
                let start = self.bytes.len() as u32;
                self.bytes.extend_from_slice(bytes);
                Some((start, self.bytes.len() as u32))
            }
            None => None,
        };
        self.rows.push(Row::Tensor {
            role,
            slot,
            layout,
            signature,
            note: part.note,
        });
    }

    /// Leaves no record but that of a gradient, whose signature is all of the bytes.
    pub fn only_gradient(&mut self, slot: u32, layout: u32) {
        self.rows.clear();
        self.rows.push(Row::Tensor {
            role: role::GRADIENT,
            slot,
            layout,
            signature: Some((0, self.bytes.len() as u32)),
            note: 0,
        });
    }

    /// Adds a value's record.
    pub fn value(&mut self, role: u8, slot: u32, text: Arc<str>) {
        self.rows.push(Row::Value { role, slot, text });
    }

    fn signature(&self, range: Option<(u32, u32)>) -> Option<&[u8]> {
        range.map(|(start, end)| &self.bytes[start as usize..end as usize])
    }
}

impl Sink {
    /// Takes any writer.
    pub fn new(writer: Bound<'_, PyAny>) -> Self {
        match writer.cast_into_exact::<CaptureWriter>() {
            Ok(writer) => Self::Writer(writer.unbind()),
            Err(error) => Self::Object(error.into_inner().unbind()),
        }
    }

    /// Id of a text.
    pub fn name(&self, py: Python<'_>, text: &str) -> PyResult<u32> {
        match self {
            Self::Writer(writer) => writer.get().append(py, |batch| batch.name(text)),
            Self::Object(writer) => writer
                .call_method1(py, pyo3::intern!(py, "intern"), (text,))?
                .extract(py),
        }
    }

    /// Id of a layout.
    pub fn layout(&self, py: Python<'_>, layout: &LayoutText<'_>) -> PyResult<u32> {
        match self {
            Self::Writer(writer) => writer
                .get()
                .append(py, |batch| batch.layout(layout.clone())),
            Self::Object(writer) => {
                let shape = pyo3::types::PyTuple::new(py, &layout.shape)?;
                let strides = layout.strides.as_ref();
                let strides = strides
                    .map(|s| pyo3::types::PyTuple::new(py, s))
                    .transpose()?;
                let (dtype, device, kind) = (layout.dtype, layout.device, layout.kind);
                let arguments = (dtype, shape, strides, device, kind, layout.logical_nbytes);
                writer
                    .call_method1(py, pyo3::intern!(py, "layout"), arguments)?
                    .extract(py)
            }
        }
    }

    /// Writes the begin of a call and its records; returns the call's number.
    pub fn begin(&self, py: Python<'_>, begin: Begin, rows: &Rows) -> PyResult<u64> {
        match self {
            Self::Writer(writer) => writer.get().append(py, |batch| {
                let call = batch.begin(begin)?;
                append(batch, call, rows)?;
                Ok(call)
            }),
            Self::Object(writer) => {
                let Begin {
                    parent,
                    site,
                    step,
                    phase,
                    thread,
                    flags,
                    callee,
                } = begin;
                let arguments = (parent, site, step, phase, thread, flags, callee);
                let call = writer
                    .call_method1(py, pyo3::intern!(py, "begin"), arguments)?
                    .extract(py)?;
                call_each(py, writer, call, rows)?;
                Ok(call)
            }
        }
    }

    /// Writes records of a call, and its end if there is one.
    pub fn write(&self, py: Python<'_>, call: u64, rows: &Rows, end: Option<End>) -> PyResult<()> {
        match self {
            Self::Writer(writer) => writer.get().append(py, |batch| {
                append(batch, call, rows)?;
                if let Some(end) = end {
                    batch.end(call, end.status, end.flags, end.error)?;
                }
                Ok(())
            }),
            Self::Object(writer) => {
                call_each(py, writer, call, rows)?;
                if let Some(end) = end {
                    let arguments = (call, end.status, end.flags, end.error);
                    writer.call_method1(py, pyo3::intern!(py, "end"), arguments)?;
                }
                Ok(())
            }
        }
    }
}

/// Writes records of a call.
pub fn append(
    batch: &mut crate::capture::append::Appender<'_>,
    call: u64,
    rows: &Rows,
) -> Result<(), crate::capture::writer::WriteError> {
    for row in &rows.rows {
        match row {
            Row::Tensor {
                role,
                slot,
                layout,
                signature,
                note,
            } => batch.tensor(TensorRow {
                tick: 0,
                call,
                role: *role,
                slot: *slot,
                layout: *layout,
                signature: rows.signature(*signature),
                note: *note,
            })?,
            Row::Pending {
                role,
                slot,
                layout,
                signature,
                unless,
            } => {
                let row = TensorRow {
                    tick: 0,
                    call,
                    role: *role,
                    slot: *slot,
                    layout: *layout,
                    signature: None,
                    note: 0,
                };
                batch.pending_tensor(row, signature, unless.as_ref())?
            }
            Row::Value { role, slot, text } => batch.value(call, *role, *slot, text)?,
        };
    }
    Ok(())
}

fn call_each(py: Python<'_>, writer: &Py<PyAny>, call: u64, rows: &Rows) -> PyResult<()> {
    let (tensor, value) = (
        PyString::intern(py, "tensor"),
        PyString::intern(py, "value"),
    );
    for row in &rows.rows {
        match row {
            Row::Tensor {
                role,
                slot,
                layout,
                signature,
                note,
            } => {
                let signature = rows
                    .signature(*signature)
                    .map(|bytes| PyBytes::new(py, bytes));
                writer.call_method1(py, &tensor, (call, role, slot, layout, signature, note))?;
            }
            Row::Pending {
                role,
                slot,
                layout,
                signature,
                unless,
            } => {
                let signature = PendingSignature(signature.clone());
                let unless = unless.clone().map(PendingSignature);
                let arguments = (call, role, slot, layout, signature, 0, unless);
                writer.call_method1(py, &tensor, arguments)?;
            }
            Row::Value { role, slot, text } => {
                writer.call_method1(py, &value, (call, role, slot, &**text))?;
            }
        }
    }
    Ok(())
}
