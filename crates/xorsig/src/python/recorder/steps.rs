//! Both sides of an optimizer's step.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::entry::{LastOwner, Place};
use super::frame::CallFrame;
use super::known::{Known, Member, Met};
use super::role;
use super::state::State;

/// Entries of a group that are no settings.
const NO_SETTINGS: [&str; 2] = ["params", "param_names"];

impl State {
    /// Gathers one side of a step: the inputs of it, or its outputs.
    pub fn around_step(
        &mut self,
        known: &mut Known,
        frame: &CallFrame,
        optimizer: &Bound<'_, PyAny>,
        role: u8,
    ) -> PyResult<()> {
        let py = optimizer.py();
        let changed = known.changes(self, py)?;
        let members = known.members(self, optimizer)?;
        let mut group: Option<(usize, Arc<str>)> = None;
        let mut last = LastOwner::default();
        for member in &members {
            // Known by now: neither owner nor place is used.
            let met = Met {
                name: &member.names.name,
                owner: optimizer,
                place: Place::Group(member.group, 0),
            };
            let (reading, _) = known.read(self, &member.tensor, met, true, &mut last)?;
            let slot = &member.names.parameter;
            self.gather_named(py, role, slot, Some(&reading), None)?;
            frame.note_recorded(slot.id);
            if role == role::INPUT {
                let text = match &group {
                    Some((number, text)) if *number == member.group => Arc::clone(text),
                    _ => member.group.to_string().into(),
                };
                group = Some((member.group, Arc::clone(&text)));
                self.rows.value(role, member.names.group.id, text);
            }
        }
        if role == role::INPUT {
            known.record_gradients(self, py, role)?;
            self.settings(optimizer)?;
        }
        self.optimizer_state(optimizer, &members, role)?;
        frame.found().merge(&changed);
        Ok(())
    }

    /// Gathers every group's settings: learning rate, decay, flags.
    fn settings(&mut self, optimizer: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = optimizer.py();
        let groups = optimizer.getattr(intern!(py, "param_groups"))?;
        for (index, group) in groups.try_iter()?.enumerate() {
            let items = group?.call_method0(intern!(py, "items"))?;
            for item in items.try_iter()? {
                let (key, value) = item?.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
                let key = key.str()?;
                let key = key.to_str()?;
                if NO_SETTINGS.contains(&key) {
                    continue;
                }
                let value = if !value.is_instance(self.tensor_type.bind(py))? {
                    value
                } else if value.getattr(intern!(py, "is_cpu"))?.is_truthy()? {
                    value.call_method0(intern!(py, "item"))?
                } else {
                    // The number would have to be waited for.
                    let reading = self.reading(&value)?;
                    let slot = format!("state.group[{index}].{key}");
                    self.gather(py, role::INPUT, &slot, Some(&reading))?;
                    continue;
                };
                let text = self.plain_text(&value)?;
                let slot = format!("value.group[{index}].{key}");
                let slot = self.sink.name(py, &slot)?;
                self.rows.value(role::INPUT, slot, text);
            }
        }
        Ok(())
    }

    /// Gathers everything in the optimizer's state.
    fn optimizer_state(
        &mut self,
        optimizer: &Bound<'_, PyAny>,
        members: &[Member<'_>],
        role: u8,
    ) -> PyResult<()> {
        let py = optimizer.py();
        let state = optimizer.getattr(intern!(py, "state"))?;
        if !state.is_truthy()? {
            return Ok(());
        }
        for member in members {
            if !state.contains(&member.tensor)? {
                continue;
            }
            let held = state.get_item(&member.tensor)?;
            for item in held.call_method0(intern!(py, "items"))?.try_iter()? {
                let (key, item) = item?.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
                let slot = format!("state.{}.{}", member.names.name, key.str()?.to_str()?);
                if item.is_instance(self.tensor_type.bind(py))? {
                    let reading = self.reading(&item)?;
                    self.gather(py, role, &slot, Some(&reading))?;
                } else {
                    let text = self.plain_text(&item)?;
                    let slot = self.sink.name(py, &slot)?;
                    self.rows.value(role, slot, text);
                }
            }
        }
        Ok(())
    }

    /// Python's `plain_text`; that of a plain value is remembered.
    fn plain_text(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Arc<str>> {
        if let Some(text) = self.values.text(value)? {
            return Ok(text);
        }
        let py = value.py();
        let text = self.plain_text.bind(py).call1((value,))?;
        Ok(text.cast::<PyString>()?.to_str()?.into())
    }
}
