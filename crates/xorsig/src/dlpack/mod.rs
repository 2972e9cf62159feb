//! Tensors of torch, borrowed without reading a Python attribute of each.
//!
//! torch offers a table of C functions as the capsule `torch.Tensor.__dlpack_c_exchange_api__`.
//! One of them fills in address, element type, shape, strides and device of a tensor in about
//! 0.1 µs, where the attributes cost 0.1 to 0.2 µs each.
//!
//! ```ignore
//! let torch = TorchTensors::discover(py)?;             // once; None: torch is too old
//! match torch.borrow(&object) {
//!     Ok(tensor) => {                                  // valid while `object` is borrowed
//!         let layout = tensor.layout()?;               // shape and strides, checked, copied
//!         let address = tensor.address();              // of the first element
//!         if tensor.device().kind == DeviceKind::CPU { /* read layout.nbytes() bytes */ }
//!     }
//!     Err(Refusal::Type) => {}                         // a subclass, or no tensor at all
//!     Err(reason) => {}                                // conj, sparse, fake, freed, ...
//! }
//! ```
//!
//! The C function trusts its caller, so [`TorchTensors::borrow`] checks first and afterwards:
//!
//! - Only the exact types `torch.Tensor` and `torch.nn.Parameter` are passed on. A subclass
//!   inherits the capsule, and a fake tensor answers it with a pointer to nothing.
//! - A pending conjugation or negation is not part of the answer; such tensors are refused.
//! - A functional tensor, a zero tensor, or one whose storage was freed answers with a null
//!   pointer, plus the offset of its view.
//! - Sparse, nested, opaque, quantised, meta and transformed (`vmap`, `grad`) tensors make the C
//!   function raise.
//!
//! Two things it does not say: torch's integers of fewer than 8 bits (`uint4`, `int3`, ...) look
//! like `uint8` and `int8`, and a storage that was shrunk under a tensor (`resize_` to fewer
//! bytes, not to none) is not noticed. A tensor that `torch._lazy_clone` made gets its own copy
//! of the data by the first borrow, as by `data_ptr()`.
//!
//! Function modes and dispatch modes must be off: two of the checks are calls of torch.

mod abi;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::num::TryFromIntError;

use pyo3::prelude::*;
use pyo3::types::PyType;
use pyo3::{ffi, intern};

use crate::fingerprint::layout::{Layout, LayoutError};
use abi::{CAPSULE, ExchangeTable, FromObject, Header, MAJOR, RawTensor};
pub use abi::{DataType, Device, DeviceKind};

/// Below this address a tensor's storage is looked at. A view of a freed storage answers with its
/// offset from the null pointer; real addresses as low as that occur too, in the heap of a program
/// that is loaded at a fixed address.
const SUSPICIOUS_BELOW: usize = 1 << 40;

/// Why a tensor was not borrowed.
#[derive(Debug)]
pub enum Refusal {
    /// The object is not exactly a `torch.Tensor` or `torch.nn.Parameter`.
    Type,
    /// A conjugation is pending: the bytes are not the values.
    Conjugate,
    /// A negation is pending: the bytes are not the values.
    Negative,
    /// There are elements but no memory behind them: a freed storage, a zero or functional tensor.
    NoMemory,
    /// torch refused: the tensor has no strided memory. Its exception says more.
    Torch(PyErr),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Type => f.write_str("neither a torch.Tensor nor a torch.nn.Parameter"),
            Self::Conjugate => f.write_str("a conjugation is pending"),
            Self::Negative => f.write_str("a negation is pending"),
            Self::NoMemory => f.write_str("the tensor has no memory"),
            Self::Torch(error) => write!(f, "{error}"),
        }
    }
}

/// What is needed of the torch that this process has imported.
pub struct TorchTensors {
    tensor: Py<PyType>,
    parameter: Py<PyType>,
    is_conj: Py<PyAny>,
    is_neg: Py<PyAny>,
    from_object: FromObject,
}

impl TorchTensors {
    /// The interface of the imported torch, or `None` if that offers none of a known version.
    ///
    /// Keep the result: it holds for the life of the process.
    ///
    /// # Errors
    /// torch cannot be imported.
    pub fn discover(py: Python<'_>) -> PyResult<Option<Self>> {
        let torch = py.import(intern!(py, "torch"))?;
        let tensor = torch
            .getattr(intern!(py, "Tensor"))?
            .cast_into::<PyType>()?;
        let Ok(capsule) = tensor.getattr(intern!(py, "__dlpack_c_exchange_api__")) else {
            return Ok(None);
        };
        let Some(from_object) = from_object_of(&capsule) else {
            return Ok(None);
        };
        let nn = torch.getattr(intern!(py, "nn"))?;
        let parameter = nn.getattr(intern!(py, "Parameter"))?;
        Ok(Some(Self {
            is_conj: tensor.getattr(intern!(py, "is_conj"))?.unbind(),
            is_neg: tensor.getattr(intern!(py, "is_neg"))?.unbind(),
            parameter: parameter.cast_into::<PyType>()?.unbind(),
            tensor: tensor.unbind(),
            from_object,
        }))
    }

    /// Whether the object's type is one that [`Self::borrow`] takes: two pointer comparisons.
    pub fn takes(&self, object: &Bound<'_, PyAny>) -> bool {
        let kind = object.get_type_ptr().cast();
        kind == self.tensor.as_ptr() || kind == self.parameter.as_ptr()
    }

    /// Address, element type, shape, strides and device of a tensor.
    ///
    /// # Errors
    /// A [`Refusal`] for everything that is not plain strided memory; no Python exception is
    /// left pending.
    pub fn borrow<'a>(&self, object: &'a Bound<'_, PyAny>) -> Result<BorrowedTensor<'a>, Refusal> {
        if !self.takes(object) {
            return Err(Refusal::Type);
        }
        let py = object.py();
        let ask = |method: &Py<PyAny>| -> Result<bool, Refusal> {
            let answer = method.bind(py).call1((object,)).map_err(Refusal::Torch)?;
            Ok(answer.is(&*pyo3::types::PyBool::new(py, true)))
        };
        let mut raw = std::mem::MaybeUninit::<RawTensor>::uninit();
        // SAFETY: the function is torch's, of the major version that `abi` describes; the object
        // is exactly of the type that the table was found on, or of Parameter, which has the same
        // object layout; this thread holds the GIL.
        let status =
            unsafe { (self.from_object)(object.as_ptr().cast::<c_void>(), raw.as_mut_ptr()) };
        if status != 0 {
            return Err(Refusal::Torch(PyErr::fetch(py)));
        }
        // SAFETY: the function has reported success, so it has filled in every field.
        let raw = unsafe { raw.assume_init() };
        let tensor = BorrowedTensor {
            raw,
            owner: PhantomData,
        };
        if ask(&self.is_neg)? {
            return Err(Refusal::Negative);
        }
        if tensor.dtype().code == DataType::COMPLEX && ask(&self.is_conj)? {
            return Err(Refusal::Conjugate);
        }
        if tensor.address().addr() < SUSPICIOUS_BELOW
            && !tensor.shape().contains(&0)
            && !has_storage(object, &tensor)
        {
            return Err(Refusal::NoMemory);
        }
        Ok(tensor)
    }
}

/// A tensor's description, valid while its object is borrowed and the GIL is held.
///
/// Take [`Self::address`] and [`Self::layout`] before the GIL is released: another thread may
/// then resize the tensor.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedTensor<'a> {
    raw: RawTensor,
    owner: PhantomData<&'a ()>,
}

impl<'a> BorrowedTensor<'a> {
    /// Address of the first element, on [`Self::device`]; null without elements.
    pub fn address(&self) -> *const u8 {
        let data = self.raw.data.cast::<u8>();
        data.wrapping_add(usize::try_from(self.raw.byte_offset).unwrap_or(0))
    }

    /// Element type.
    pub fn dtype(&self) -> DataType {
        self.raw.dtype
    }

    /// Where the memory is.
    pub fn device(&self) -> Device {
        self.raw.device
    }

    /// Lengths of the dimensions.
    pub fn shape(&self) -> &'a [i64] {
        self.dims(self.raw.shape)
    }

    /// Distances of the dimensions in elements.
    pub fn strides(&self) -> &'a [i64] {
        self.dims(self.raw.strides)
    }

    /// The description that [`crate::fingerprint::strided::fingerprint`] takes.
    ///
    /// # Errors
    /// The element type does not fill whole bytes, or the extent fits no address space.
    pub fn layout(&self) -> Result<Layout, LayoutError> {
        let itemsize = self.dtype().itemsize().ok_or(LayoutError::ItemSize)?;
        let shape: Result<Vec<usize>, TryFromIntError> =
            self.shape().iter().map(|&len| len.try_into()).collect();
        let strides: Result<Vec<isize>, TryFromIntError> =
            self.strides().iter().map(|&step| step.try_into()).collect();
        let too_large = |_| LayoutError::TooLarge;
        Layout::new(
            &shape.map_err(too_large)?,
            &strides.map_err(too_large)?,
            itemsize,
        )
    }

    fn dims(&self, pointer: *const i64) -> &'a [i64] {
        match usize::try_from(self.raw.ndim) {
            // SAFETY: torch points at the `ndim` numbers that the tensor object itself holds; it
            // lives for `'a`, and whoever resizes it needs the GIL.
            Ok(ndim) if ndim > 0 => unsafe { std::slice::from_raw_parts(pointer, ndim) },
            _ => &[],
        }
    }
}

/// Whether the storage holds every element; asked only for suspicious addresses.
fn has_storage(object: &Bound<'_, PyAny>, tensor: &BorrowedTensor<'_>) -> bool {
    let py = object.py();
    let number = |name: &Bound<'_, pyo3::types::PyString>,
                  of: &Bound<'_, PyAny>|
     -> PyResult<usize> { of.call_method0(name)?.extract() };
    let stored = object
        .call_method0(intern!(py, "untyped_storage"))
        .and_then(|storage| number(intern!(py, "nbytes"), &storage));
    let offset = number(intern!(py, "storage_offset"), object);
    let (Ok(stored), Ok(offset), Some(itemsize)) = (stored, offset, tensor.dtype().itemsize())
    else {
        return false;
    };
    let last = tensor.shape().iter().zip(tensor.strides());
    let last: i64 = last.map(|(len, step)| (len - 1) * step).sum();
    let end = usize::try_from(last).map_or(usize::MAX, |last| (offset + last + 1) * itemsize);
    tensor.address().addr() != 0 && stored >= end
}

/// The function that fills in a `DLTensor`, from the newest table of a known major version.
fn from_object_of(capsule: &Bound<'_, PyAny>) -> Option<FromObject> {
    // SAFETY: a valid object; with a name that differs, the call fails and sets an exception.
    let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), CAPSULE.as_ptr()) };
    if table.is_null() {
        drop(PyErr::take(capsule.py()));
        return None;
    }
    let mut header: *const Header = table.cast_const().cast();
    // SAFETY: the capsule's name says what it points to: a header that is stable over all
    // versions and lives as long as the process, and a chain of older ones that ends in null.
    while let Some(current) = unsafe { header.as_ref() } {
        if current.major == MAJOR {
            // SAFETY: a header of this major version begins a table of this layout.
            return unsafe { (*header.cast::<ExchangeTable>()).tensor_from_object };
        }
        header = current.previous;
    }
    None
}
