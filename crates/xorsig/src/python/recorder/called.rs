//! What Python's rules say about a callee that may do anything.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Facts about one call; see ``opguard.core.recording.called``.
pub struct Called<'py> {
    pub name: String,
    pub flags: u32,
    /// Whether it can only read what it is given, and what it holds.
    pub reads_only: bool,
    /// Whether it may move torch's random generators.
    pub random: bool,
    /// Whether it may move those of Python and numpy as well.
    pub python_random: bool,
    /// Whether the values that it returns say nothing of their own.
    pub workload_code: bool,
    /// Whether it makes a step of an optimizer and nothing else.
    pub is_step: bool,
    /// Whether it reads gradients that no argument shows.
    pub reads_gradients: bool,
    /// Slots that it overwrites without reading them begin with one of these.
    pub overwritten: Vec<String>,
    /// The tensor that it is bound to.
    pub owner: Option<Bound<'py, PyAny>>,
    /// The module that it runs.
    pub module: Option<Bound<'py, PyAny>>,
    /// The optimizers whose state it may change.
    pub optimizers: Vec<Bound<'py, PyAny>>,
}

impl<'py> Called<'py> {
    /// From the named tuple.
    pub fn from_python(facts: &Bound<'py, PyAny>) -> PyResult<Self> {
        let facts = facts.cast::<PyTuple>()?;
        let some = |item: Bound<'py, PyAny>| (!item.is_none()).then_some(item);
        Ok(Self {
            name: facts.get_item(0)?.extract()?,
            flags: facts.get_item(1)?.extract()?,
            reads_only: facts.get_item(2)?.is_truthy()?,
            random: facts.get_item(3)?.is_truthy()?,
            python_random: facts.get_item(4)?.is_truthy()?,
            workload_code: facts.get_item(5)?.is_truthy()?,
            is_step: facts.get_item(6)?.is_truthy()?,
            reads_gradients: facts.get_item(7)?.is_truthy()?,
            overwritten: facts.get_item(8)?.extract()?,
            owner: some(facts.get_item(9)?),
            module: some(facts.get_item(10)?),
            optimizers: facts.get_item(11)?.extract()?,
        })
    }
}
