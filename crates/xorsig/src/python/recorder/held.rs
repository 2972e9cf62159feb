//! What tells a memory apart from one that comes after it at the same address.
//!
//! A gradient that is dropped and made anew, or a parameter whose data is replaced, often gets the
//! block that was freed just before: the same address, and a version counter that begins anew. The
//! object behind the memory is told apart by a weak reference: as long as one is held, the object's
//! own few bytes are not given to another, while what it held is.

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;

/// torch's functions for weak references; methods are called as they are, whatever a subclass has.
pub struct WeakReferences {
    /// `TensorBase.untyped_storage`.
    storage: Py<PyAny>,
    /// `StorageBase._weak_ref`: the address of a storage, of which it takes a weak reference.
    take: Py<PyAny>,
    /// `StorageBase._free_weak_ref`.
    give_back: Py<PyAny>,
    /// `_WeakTensorRef`.
    tensor: Py<PyAny>,
}

impl WeakReferences {
    /// Of the four functions, in the order of the fields.
    pub fn new([storage, take, give_back, tensor]: [Py<PyAny>; 4]) -> Self {
        Self {
            storage,
            take,
            give_back,
            tensor,
        }
    }

    /// Holds the storage of a tensor; of one without, the tensor's implementation.
    pub fn hold(&self, tensor: &Bound<'_, PyAny>) -> PyResult<Held> {
        let py = tensor.py();
        let storage = match self.storage.bind(py).call1((tensor,)) {
            Ok(storage) => storage,
            // torch's refusals: sparse and the like, and wrappers of other tensors.
            Err(error)
                if error.is_instance_of::<PyRuntimeError>(py)
                    || error.is_instance_of::<PyTypeError>(py) =>
            {
                return Ok(Held::Tensor {
                    _reference: self.tensor.call1(py, (tensor,))?,
                });
            }
            Err(error) => return Err(error),
        };
        Ok(Held::Storage {
            address: self.take.bind(py).call1((storage,))?.extract()?,
            give_back: self.give_back.clone_ref(py),
        })
    }
}

/// A weak reference.
#[derive(Default)]
pub enum Held {
    /// None.
    #[default]
    Nothing,
    /// To a storage.
    Storage {
        /// Its address.
        address: usize,
        /// Ends it.
        give_back: Py<PyAny>,
    },
    /// To the implementation of a tensor.
    Tensor {
        /// Ends it when it goes.
        _reference: Py<PyAny>,
    },
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Self::Storage { address, give_back } = self {
            // An interpreter that is ending takes the few bytes with it.
            Python::try_attach(|py| give_back.call1(py, (*address,)).map(drop));
        }
    }
}
