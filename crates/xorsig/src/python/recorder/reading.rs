//! Fingerprints of plain CPU tensors, with their layouts interned.

use std::collections::HashMap;

use pyo3::prelude::*;

use super::super::fingerprint::release;
use super::access::{TensorAccess, View};
use super::sink::Sink;
use crate::capture::append::LayoutText;
use crate::fingerprint::layout::Layout;
use crate::fingerprint::level::Level;
use crate::fingerprint::strided;
use crate::fingerprint::threads::default_threads;

/// What tensors of one element type, shape and strides share.
struct Known {
    dtype: i32,
    sizes: Box<[i64]>,
    strides: Box<[i64]>,
    itemsize: usize,
    /// Elements from the first to behind the last; 0 without elements.
    extent: i64,
    layout: Layout,
    id: u32,
}

/// Reads tensors of the exact types `torch.Tensor` and `torch.nn.Parameter` that are plain memory.
pub struct Reader {
    access: Option<TensorAccess>,
    types: [Py<PyAny>; 2],
    regions: usize,
    /// Whether tensors with these dispatch keys are plain CPU memory.
    plain: HashMap<u64, bool>,
    dtypes: HashMap<i32, (String, usize)>,
    layouts: HashMap<u64, Vec<Known>>,
    /// Python's reader: `is_plain_cpu(tensor)` and `dtype(tensor)`.
    python: Py<PyAny>,
}

impl Reader {
    /// A reader; without `access` it reads nothing.
    pub fn new(
        access: Option<TensorAccess>,
        types: [Py<PyAny>; 2],
        regions: usize,
        python: Py<PyAny>,
    ) -> Self {
        Self {
            access,
            types,
            regions,
            plain: HashMap::new(),
            dtypes: HashMap::new(),
            layouts: HashMap::new(),
            python,
        }
    }

    /// Whether `item` is a tensor of an exact type, whose methods are all torch's.
    pub fn is_tensor(&self, item: &Bound<'_, PyAny>) -> bool {
        let kind = item.get_type_ptr().cast();
        self.types.iter().any(|t| t.as_ptr() == kind)
    }

    /// The implementation of a plain CPU tensor of an exact type, else `None`.
    pub fn plain(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<Option<*mut std::ffi::c_void>> {
        let Some(access) = self.access.as_ref().filter(|_| self.is_tensor(tensor)) else {
            return Ok(None);
        };
        // SAFETY: the tensor is alive and of an exact type.
        let implementation = unsafe { access.implementation(tensor.as_ptr()) };
        // SAFETY: as above.
        let keys = unsafe { access.keys(implementation) };
        let plain = match self.plain.get(&keys) {
            Some(plain) => *plain,
            None => {
                let py = tensor.py();
                let asked =
                    self.python
                        .call_method1(py, pyo3::intern!(py, "is_plain_cpu"), (tensor,))?;
                let plain = asked.is_truthy(py)?;
                self.plain.insert(keys, plain);
                plain
            }
        };
        Ok(plain.then_some(implementation))
    }

    /// Address of the first element of a plain CPU tensor of an exact type, else `None`.
    pub fn address(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let Some(implementation) = self.plain(tensor)? else {
            return Ok(None);
        };
        // SAFETY: the keys of the implementation say that the tensor is plain; it is alive.
        let view = self
            .access
            .as_ref()
            .and_then(|access| unsafe { access.view(&implementation) });
        Ok(view.map(|view| view.data as usize))
    }

    /// Appends the signature of a plain CPU tensor to `out` and returns its layout's id.
    ///
    /// `None`, and nothing appended, for any other tensor, and for one whose storage is freed.
    pub fn read(
        &mut self,
        tensor: &Bound<'_, PyAny>,
        sink: &Sink,
        out: &mut Vec<u8>,
    ) -> PyResult<Option<u32>> {
        let Some(implementation) = self.plain(tensor)? else {
            return Ok(None);
        };
        let regions = self.regions;
        // SAFETY: the keys of the implementation say that the tensor is plain; it is alive, and
        // the GIL is held until its fields have been copied.
        let view = self
            .access
            .as_ref()
            .and_then(|access| unsafe { access.view(&implementation) });
        let Some(view) = view else { return Ok(None) };
        let data = view.data;
        let (offset, stored) = (view.storage_offset, view.storage_bytes);
        let known = self.layout_of(tensor, &view, sink)?;
        // A storage can be freed or shrunk under a tensor, as sharding does between uses.
        let needed = known
            .extent
            .checked_add(if known.extent == 0 { 0 } else { offset })
            .and_then(|elements| elements.checked_mul(known.itemsize as i64));
        if needed.is_none_or(|needed| stored < needed) {
            return Ok(None);
        }
        let (id, layout) = (known.id, &known.layout);
        let data = Address(data);
        let hashed = release(tensor.py(), layout.nbytes(), move || {
            // SAFETY: the tensor is alive, its layout comes from torch, and its storage reaches
            // behind its last element.
            unsafe {
                strided::fingerprint(
                    data.get(),
                    layout,
                    regions,
                    Level::detect(),
                    default_threads(),
                )
            }
        });
        let Ok(fingerprint) = hashed else {
            return Ok(None);
        };
        let values = fingerprint.values();
        out.extend(values.iter().flat_map(|value| value.xor.to_le_bytes()));
        out.extend(values.iter().flat_map(|value| value.mix.to_le_bytes()));
        Ok(Some(id))
    }

    fn layout_of(
        &mut self,
        tensor: &Bound<'_, PyAny>,
        view: &View<'_>,
        sink: &Sink,
    ) -> PyResult<&Known> {
        let same = |known: &Known| {
            known.dtype == view.dtype
                && *known.sizes == *view.sizes
                && *known.strides == *view.strides
        };
        let hash = hash_of(view);
        let found = self
            .layouts
            .get(&hash)
            .and_then(|all| all.iter().position(same));
        let position = match found {
            Some(position) => position,
            None => {
                let known = self.intern(tensor, view, sink)?;
                let all = self.layouts.entry(hash).or_default();
                all.push(known);
                all.len() - 1
            }
        };
        Ok(&self.layouts[&hash][position])
    }

    fn intern(
        &mut self,
        tensor: &Bound<'_, PyAny>,
        view: &View<'_>,
        sink: &Sink,
    ) -> PyResult<Known> {
        let py = tensor.py();
        if !self.dtypes.contains_key(&view.dtype) {
            let named = self
                .python
                .call_method1(py, pyo3::intern!(py, "dtype"), (tensor,))?
                .extract::<(String, usize)>(py)?;
            self.dtypes.insert(view.dtype, named);
        }
        let (dtype, itemsize) = &self.dtypes[&view.dtype];
        let invalid = |error: crate::fingerprint::layout::LayoutError| {
            pyo3::exceptions::PyValueError::new_err(error.to_string())
        };
        let sizes = view.sizes.iter().map(|&n| n as usize).collect::<Vec<_>>();
        let strides = view.strides.iter().map(|&n| n as isize).collect::<Vec<_>>();
        let layout = Layout::new(&sizes, &strides, *itemsize).map_err(invalid)?;
        let last = view.sizes.iter().zip(view.strides);
        let last = last.map(|(&n, &step)| (n - 1) * step).sum::<i64>();
        let text = LayoutText {
            dtype,
            shape: view.sizes.to_vec(),
            strides: Some(view.strides.to_vec()),
            device: "cpu",
            kind: "strided",
            logical_nbytes: layout.nbytes() as u64,
        };
        Ok(Known {
            dtype: view.dtype,
            sizes: view.sizes.into(),
            strides: view.strides.into(),
            itemsize: *itemsize,
            extent: if layout.nbytes() == 0 { 0 } else { last + 1 },
            layout,
            id: sink.layout(py, &text)?,
        })
    }
}

/// An address that may cross to where the GIL is not held.
struct Address(*const u8);

// SAFETY: only the address crosses; what it points to is read under the caller's promise.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Address {
    fn get(&self) -> *const u8 {
        self.0
    }
}

fn hash_of(view: &View<'_>) -> u64 {
    let parts = view.sizes.iter().chain(view.strides);
    parts.fold(view.dtype as u64, |hash, &part| {
        (hash.rotate_left(5) ^ part as u64).wrapping_mul(0x517c_c1b7_2722_0a95)
    })
}
