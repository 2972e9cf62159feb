//! Telling whether a parameter or its gradient may have changed without reading its bytes.

use pyo3::intern;
use pyo3::prelude::*;

use super::super::fingerprint::RELEASE_BYTES;
use super::held::{Held, WeakReferences};
use super::state::{Part, Reading, State};

/// What changes when a tensor is replaced, gets other memory, or is written to by an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// Identity of a gradient; 0 of a parameter, which is told apart by where it is found.
    identity: usize,
    /// Version counter; -1 where there is none.
    version: i64,
    /// Of the first element; 0 where there is none.
    address: usize,
    /// Of the object behind the memory: the storage, or the implementation of a tensor without.
    memory: usize,
}

impl Key {
    /// That of no tensor, and not that of an absent gradient.
    const UNKNOWN: Self = Self {
        identity: 0,
        version: i64::MIN,
        address: 0,
        memory: 0,
    };
}

/// A parameter and its gradient at one moment; the default key is that of no gradient.
pub struct Look {
    pub key: Key,
    pub gradient_key: Key,
}

/// The last reading of a tensor: its key then, and what keeps the key from coming back.
pub struct Seen {
    key: Key,
    held: Held,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            key: Key::UNKNOWN,
            held: Held::Nothing,
        }
    }
}

impl Seen {
    /// Whether the tensor may have changed since.
    pub fn differs(&self, key: Key) -> bool {
        self.key != key
    }

    /// The tensor is about to be read; [`Self::after_reading`] is to follow with the key that comes back.
    ///
    /// `tensor` is asked for only where the memory is another one.
    pub fn before_reading<'py>(
        &mut self,
        references: &WeakReferences,
        mut key: Key,
        tensor: impl FnOnce() -> PyResult<Option<Bound<'py, PyAny>>>,
    ) -> PyResult<Key> {
        let memory = std::mem::replace(&mut self.key, Key::UNKNOWN).memory;
        if memory != key.memory {
            let tensor = match key.memory {
                0 => None,
                _ => tensor()?,
            };
            let held = tensor.map(|tensor| references.hold(&tensor)).transpose()?;
            self.held = held.unwrap_or_default();
            if let Held::Storage { address, .. } = self.held {
                key.memory = address;
            }
        }
        Ok(key)
    }

    /// The tensor was read, and had this key before.
    pub fn after_reading(&mut self, key: Key) {
        self.key = key;
    }
}

impl State {
    /// Looks at a parameter.
    pub fn look(&mut self, parameter: &Bound<'_, PyAny>) -> PyResult<Look> {
        if let Some(look) = self.look_natively(parameter)? {
            return Ok(look);
        }
        let key = self.key(parameter, 0)?;
        let gradient_key = match self.torch.accessors.gradient(parameter)? {
            None => Key::default(),
            Some(gradient) => self.key(&gradient, gradient.as_ptr() as usize)?,
        };
        Ok(Look { key, gradient_key })
    }

    /// As [`Self::look`] where both are plain memory whose fields can be found.
    fn look_natively(&mut self, parameter: &Bound<'_, PyAny>) -> PyResult<Option<Look>> {
        let Some(implementation) = self.reader.plain(parameter)? else {
            return Ok(None);
        };
        // SAFETY: the keys of the implementation say that the tensor is plain; it is alive.
        let found = unsafe { self.reader.fields_at(implementation) };
        // SAFETY: as above.
        let place = unsafe { self.reader.place_at(implementation) };
        let (Some(fields), Some((address, memory))) = (found, place) else {
            return Ok(None);
        };
        let mut gradient_key = Key::default();
        if fields.node.is_null() && !fields.gradient.is_null() {
            // SAFETY: the parameter keeps the gradient while the GIL is held.
            let version = unsafe { self.reader.gradient_version(fields.gradient) };
            let Some(version) = version else {
                return Ok(None);
            };
            // SAFETY: it has a version, so its keys say that it is plain.
            let Some((address, memory)) = (unsafe { self.reader.place_at(fields.gradient) }) else {
                return Ok(None);
            };
            gradient_key = Key {
                identity: fields.gradient as usize,
                version: version.into(),
                address,
                memory,
            };
        }
        let key = Key {
            identity: 0,
            version: fields.version.into(),
            address,
            memory,
        };
        Ok(Some(Look { key, gradient_key }))
    }

    /// What Python says of a tensor.
    fn key(&mut self, tensor: &Bound<'_, PyAny>, identity: usize) -> PyResult<Key> {
        let py = tensor.py();
        let key = self
            .python_reader
            .call_method1(py, intern!(py, "key"), (tensor,))?;
        let (version, address, memory) = key.extract(py)?;
        Ok(Key {
            identity,
            version,
            address,
            memory,
        })
    }

    /// The fingerprint of the gradient of a parameter, if it is a leaf and has one.
    pub fn gradient_of(&mut self, parameter: &Bound<'_, PyAny>) -> PyResult<Option<Reading>> {
        if let Some(fields) = self.reader.fields(parameter)? {
            if !fields.node.is_null() || fields.gradient.is_null() {
                return Ok(None);
            }
            self.scratch.clear();
            let out = &mut self.scratch;
            // SAFETY: the parameter keeps the gradient while the GIL is held.
            let layout = unsafe { self.reader.read_met(fields.gradient, RELEASE_BYTES, out) };
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
