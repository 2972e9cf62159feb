//! Telling whether a parameter or its gradient may have changed without reading its bytes.

use pyo3::intern;
use pyo3::prelude::*;

use super::state::{Part, Reading, State};

/// Version counter and address, as far as a tensor has them.
pub type Key = (i64, usize);
/// Identity, version counter and address of a gradient; zeros without one.
pub type GradientKey = (usize, i64, usize);

/// What changes when a parameter or its gradient is replaced, or written to by an operator.
pub struct Look {
    pub key: Key,
    pub gradient_key: GradientKey,
}

impl State {
    /// Looks at a parameter.
    pub fn look(&mut self, parameter: &Bound<'_, PyAny>) -> PyResult<Look> {
        if let Some(look) = self.look_natively(parameter)? {
            return Ok(look);
        }
        let key = self.key(parameter)?;
        let gradient_key = match self.torch.accessors.gradient(parameter)? {
            None => (0, 0, 0),
            Some(gradient) => {
                let (version, address) = self.key(&gradient)?;
                (gradient.as_ptr() as usize, version, address)
            }
        };
        Ok(Look { key, gradient_key })
    }

    /// As [`Self::look`] where both are plain memory whose fields can be found.
    fn look_natively(&mut self, parameter: &Bound<'_, PyAny>) -> PyResult<Option<Look>> {
        let Some(fields) = self.reader.fields(parameter)? else {
            return Ok(None);
        };
        let Some(address) = self.reader.address(parameter)? else {
            return Ok(None);
        };
        let mut gradient_key = (0, 0, 0);
        if fields.node.is_null() && !fields.gradient.is_null() {
            // SAFETY: the parameter keeps the gradient while the GIL is held.
            let version = unsafe { self.reader.gradient_version(fields.gradient) };
            let Some(version) = version else {
                return Ok(None);
            };
            // SAFETY: it has a version, so its keys say that it is plain.
            let Some(address) = (unsafe { self.reader.address_at(fields.gradient) }) else {
                return Ok(None);
            };
            gradient_key = (fields.gradient as usize, i64::from(version), address);
        }
        let key = (i64::from(fields.version), address);
        Ok(Some(Look { key, gradient_key }))
    }

    /// Version counter and address of a tensor; (-1, 0) where it has none.
    fn key(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<Key> {
        let py = tensor.py();
        let key = self
            .python_reader
            .call_method1(py, intern!(py, "key"), (tensor,))?;
        key.extract(py)
    }

    /// The fingerprint of the gradient of a parameter, if it is a leaf and has one.
    pub fn gradient_of(&mut self, parameter: &Bound<'_, PyAny>) -> PyResult<Option<Reading>> {
        if let Some(fields) = self.reader.fields(parameter)? {
            if !fields.node.is_null() || fields.gradient.is_null() {
                return Ok(None);
            }
            // SAFETY: the parameter keeps the gradient while the GIL is held; one with a version
            // has keys that say that it is plain.
            let layout = unsafe {
                match self.reader.gradient_version(fields.gradient) {
                    None => None,
                    Some(_) => {
                        self.scratch.clear();
                        let (gradient, out) = (fields.gradient, &mut self.scratch);
                        let py = parameter.py();
                        self.reader.read_at(py, gradient, None, &self.sink, out)?
                    }
                }
            };
            if let Some(layout) = layout {
                return Ok(Some(Part::whole(layout, &self.scratch)));
            }
        }
        let gradient = self.torch.accessors.gradient(parameter)?;
        gradient.map(|gradient| self.reading(&gradient)).transpose()
    }

    /// Address of the memory behind a tensor; 0 for one without.
    pub fn storage(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<usize> {
        if let Some(address) = self.reader.storage(tensor, &self.sink)? {
            return Ok(address);
        }
        let py = tensor.py();
        let address = self
            .python_reader
            .call_method1(py, intern!(py, "storage"), (tensor,))?;
        address.extract(py)
    }
}
