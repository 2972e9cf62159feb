//! The known parameters, as the Python half of the recorder uses them.

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use super::effects::Effects;
use super::frame::CallFrame;

/// What the Python half uses of the known parameters; only within the recorder's guard.
#[pyclass(frozen, module = "xorsig")]
pub struct KnownParameters {
    recorder: Py<super::Recorder>,
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
        let mut state = self.recorder.get().state(py)?;
        state.with_known(|known, state| known.changes(state, py))
    }

    /// Records one side of an optimizer's step: parameters, gradients, state and settings.
    ///
    /// Args:
    ///     frame: The call that makes the step.
    ///     optimizer: The optimizer; parameters never seen are named by their position in it.
    ///     role: 0 before the step, 1 after it.
    fn around_step(
        &self,
        py: Python<'_>,
        frame: &Bound<'_, CallFrame>,
        optimizer: &Bound<'_, PyAny>,
        role: u8,
    ) -> PyResult<()> {
        let recorder = self.recorder.get();
        let mut state = recorder.state(py)?;
        state.rows.clear();
        let frame = frame.get();
        state.with_known(|known, state| state.around_step(known, frame, optimizer, role))?;
        recorder.count(&state.rows);
        state.sink.write(py, frame.number(), &state.rows, None)
    }

    /// ``(name, parameter)`` of every parameter of an optimizer.
    fn members<'py>(
        &self,
        py: Python<'py>,
        optimizer: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        let mut state = self.recorder.get().state(py)?;
        let members = state.with_known(|known, state| known.members(state, optimizer))?;
        let pairs = members
            .into_iter()
            .map(|member| (member.names.name.clone(), member.tensor));
        Ok(pairs.collect())
    }
}
