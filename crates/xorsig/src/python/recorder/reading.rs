//! Fingerprints of plain CPU tensors, with their layouts interned.

use std::ffi::c_void;

use pyo3::prelude::*;

use super::super::fingerprint::release;
use super::access::{TensorAccess, View};
use super::announced::{Announcements, Node};
use super::autograd::{AutogradAccess, Fields};
use super::hashing::Numbers;
use super::sink::Sink;
use crate::capture::append::LayoutText;
use crate::fingerprint::kernel::Values;
use crate::fingerprint::layout::Layout;
use crate::fingerprint::level::Level;
use crate::fingerprint::strided;
use crate::fingerprint::threads::default_threads;

/// What tensors of one element type, shape and strides share.
struct Met {
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
    autograd: Option<AutogradAccess>,
    types: [Py<PyAny>; 2],
    /// The values of the regions of what is read.
    values: Vec<Values>,
    /// Whether tensors with these dispatch keys are plain CPU memory.
    plain: Numbers<u64, bool>,
    /// Keys that were found plain last.
    plain_keys: u64,
    dtypes: Numbers<i32, (String, usize)>,
    layouts: Layouts,
    /// Python's reader: `is_plain_cpu(tensor)` and `dtype(tensor)`.
    python: Py<PyAny>,
}

impl Reader {
    /// A reader; without `access` it reads nothing.
    pub fn new(
        access: Option<TensorAccess>,
        autograd: Option<AutogradAccess>,
        types: [Py<PyAny>; 2],
        regions: usize,
        python: Py<PyAny>,
    ) -> Self {
        Self {
            access,
            autograd,
            types,
            values: vec![Values::default(); regions],
            plain: Numbers::default(),
            plain_keys: 0,
            dtypes: Numbers::default(),
            layouts: Layouts::default(),
            python,
        }
    }

    /// Whether `item` is a tensor of an exact type, whose methods are all torch's.
    pub fn is_tensor(&self, item: &Bound<'_, PyAny>) -> bool {
        let kind = item.get_type_ptr().cast();
        self.types.iter().any(|t| t.as_ptr() == kind)
    }

    /// The implementation of a plain CPU tensor of an exact type, else `None`.
    pub fn plain(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<Option<*mut c_void>> {
        let Some(access) = self.access.as_ref().filter(|_| self.is_tensor(tensor)) else {
            return Ok(None);
        };
        // SAFETY: the tensor is alive and of an exact type.
        let implementation = unsafe { access.implementation(tensor.as_ptr()) };
        // SAFETY: as above.
        let keys = unsafe { access.keys(implementation) };
        if keys == self.plain_keys && keys != 0 {
            return Ok(Some(implementation));
        }
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
        if plain {
            self.plain_keys = keys;
        }
        Ok(plain.then_some(implementation))
    }

    /// What autograd keeps in a plain CPU tensor of an exact type, else `None`.
    pub fn fields(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<Option<Fields>> {
        let Some(implementation) = self.plain(tensor)? else {
            return Ok(None);
        };
        // SAFETY: the keys of the implementation say that the tensor is plain; it is alive.
        Ok(unsafe { self.fields_at(implementation) })
    }

    /// What autograd keeps in a tensor, if its fields can be found.
    ///
    /// # Safety
    /// The keys of `implementation` say that it is plain, and its tensor is alive.
    pub unsafe fn fields_at(&self, implementation: *mut c_void) -> Option<Fields> {
        // SAFETY: forwarded.
        self.autograd
            .as_ref()
            .and_then(|autograd| unsafe { autograd.fields(implementation) })
    }

    /// Sequence number and address of the node of a plain CPU tensor of an exact type.
    pub fn node_key(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<Option<(u64, usize)>> {
        let fields = self.fields(tensor)?.filter(|fields| !fields.node.is_null());
        Ok(self
            .autograd
            .as_ref()
            .zip(fields)
            .map(|(autograd, fields)| {
                // SAFETY: the tensor keeps the node while the GIL is held.
                let number = unsafe { autograd.number(fields.node) };
                (number, fields.node as usize)
            }))
    }

    /// The node of a tensor as it is announced, and the number of the output; `None` for one that has
    /// none, and where announcements tell nodes apart otherwise.
    pub fn node(&self, fields: &Fields, announcements: &Announcements) -> Option<(Node, usize)> {
        let autograd = self.autograd.as_ref()?;
        if fields.node.is_null() {
            return None;
        }
        // SAFETY: the tensor keeps the node while the GIL is held.
        unsafe { announcements.node(fields, autograd.number(fields.node)) }
    }

    /// Whether the like of a tensor was found plain before.
    ///
    /// # Safety
    /// `implementation` is that of a tensor that is alive.
    pub unsafe fn is_like_plain(&self, implementation: *mut c_void) -> bool {
        let Some(access) = &self.access else {
            return false;
        };
        // SAFETY: forwarded.
        let keys = unsafe { access.keys(implementation) };
        keys == self.plain_keys && keys != 0 || self.plain.get(&keys) == Some(&true)
    }

    /// How often a gradient was written to; `None` unless its like was found plain before.
    ///
    /// # Safety
    /// `gradient` is that of the fields of a tensor that is alive and keeps it.
    pub unsafe fn gradient_version(&self, gradient: *mut c_void) -> Option<u32> {
        let autograd = self.autograd.as_ref()?;
        // SAFETY: a defined gradient is an implementation.
        if !unsafe { self.is_like_plain(gradient) } {
            return None;
        }
        // SAFETY: its keys say that it is plain.
        unsafe { autograd.fields(gradient) }.map(|fields| fields.version)
    }

    /// Address of the first element, and that of the storage.
    ///
    /// # Safety
    /// The keys of `implementation` say that it is plain, and its tensor is alive.
    pub unsafe fn place_at(&self, implementation: *mut c_void) -> Option<(usize, usize)> {
        let access = self.access.as_ref()?;
        // SAFETY: forwarded.
        let (data, storage) =
            unsafe { (access.data(&implementation), access.storage(implementation)) };
        data.map(|data| (data, storage))
    }

    /// The fields of a tensor.
    ///
    /// # Safety
    /// The keys of `implementation` say that it is plain; its tensor lives and keeps its shape while
    /// the view is used.
    unsafe fn view_at<'a>(&self, implementation: &'a *mut c_void) -> Option<View<'a>> {
        // SAFETY: forwarded.
        self.access
            .as_ref()
            .and_then(|access| unsafe { access.view(implementation) })
    }

    /// Address and number of the bytes of a plain CPU tensor of bytes in one row, else `None`.
    pub fn dense_bytes(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<Option<(usize, usize)>> {
        let Some(implementation) = self.plain(tensor)? else {
            return Ok(None);
        };
        // SAFETY: the keys of the implementation say that the tensor is plain; it is alive.
        let view = unsafe { self.view_at(&implementation) };
        Ok(view.and_then(|view| match (view.sizes, view.strides) {
            // Of so many elements and of so many bytes: they are bytes.
            (&[count], &[1]) if count == view.storage_bytes => {
                Some((view.data as usize, usize::try_from(count).ok()?))
            }
            _ => None,
        }))
    }

    /// Address of the memory behind a plain CPU tensor of an exact type, else `None`.
    pub fn storage(&mut self, tensor: &Bound<'_, PyAny>, sink: &Sink) -> PyResult<Option<usize>> {
        let Some(implementation) = self.plain(tensor)? else {
            return Ok(None);
        };
        // SAFETY: the keys of the implementation say that the tensor is plain; it is alive.
        let view = unsafe { self.view_at(&implementation) };
        let Some(view) = view else { return Ok(None) };
        let (data, offset) = (view.data as usize, view.storage_offset as usize);
        if data == 0 {
            return Ok(None);
        }
        self.learn(tensor, &view, sink)?;
        let itemsize = self.layouts.find(&view).map(|met| met.itemsize);
        Ok(itemsize.map(|itemsize| data - offset * itemsize))
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
        // SAFETY: the keys of the implementation say that the tensor is plain; it is alive.
        let view = unsafe { self.view_at(&implementation) };
        let Some(view) = view else { return Ok(None) };
        let py = Some(tensor.py());
        if let Some(met) = self.layouts.find(&view) {
            // SAFETY: the tensor is alive, and has this layout.
            return Ok(unsafe { append(&mut self.values, met, &view, py, out) });
        }
        self.learn(tensor, &view, sink)?;
        let met = self.layouts.find(&view);
        // SAFETY: as above.
        Ok(met.and_then(|met| unsafe { append(&mut self.values, met, &view, py, out) }))
    }

    /// As [`Self::read`], of a tensor whose like was met before, and of at most so many bytes.
    ///
    /// The GIL is not released meanwhile, and need not be held.
    ///
    /// # Safety
    /// The tensor of `implementation` is alive, and the caller keeps it.
    pub unsafe fn read_met(
        &mut self,
        implementation: *mut c_void,
        most_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        // SAFETY: forwarded; the keys say that the tensor is plain.
        let view = unsafe {
            if !self.is_like_plain(implementation) {
                return None;
            }
            self.view_at(&implementation)?
        };
        let met = self.layouts.find(&view)?;
        if met.layout.nbytes() > most_bytes {
            return None;
        }
        // SAFETY: the tensor is alive, and has this layout.
        unsafe { append(&mut self.values, met, &view, None, out) }
    }

    /// Knows the layout of a tensor from here on.
    fn learn(&mut self, tensor: &Bound<'_, PyAny>, view: &View<'_>, sink: &Sink) -> PyResult<()> {
        if self.layouts.find(view).is_none() {
            let met = self.intern(tensor, view, sink)?;
            self.layouts.add(view, met);
        }
        Ok(())
    }

    fn intern(&mut self, tensor: &Bound<'_, PyAny>, view: &View<'_>, sink: &Sink) -> PyResult<Met> {
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
        Ok(Met {
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

/// Appends the signature of a tensor to `out` and returns its layout's id; `None`, and nothing appended,
/// where its storage is freed.
///
/// # Safety
/// `view` is that of a tensor in memory, which is alive and has the layout of `met`.
unsafe fn append(
    values: &mut [Values],
    met: &Met,
    view: &View<'_>,
    py: Option<Python<'_>>,
    out: &mut Vec<u8>,
) -> Option<u32> {
    // A storage can be freed or shrunk under a tensor, as sharding does between uses.
    let before = if met.extent == 0 {
        0
    } else {
        view.storage_offset
    };
    let needed = met.extent.checked_add(before)?;
    if view.storage_bytes < needed.checked_mul(met.itemsize as i64)? {
        return None;
    }
    let (data, layout) = (Address(view.data), &met.layout);
    let mut hash = || {
        let (level, threads) = (Level::detect(), default_threads());
        // SAFETY: the tensor is alive, its layout comes from torch, and its storage reaches behind
        // its last element.
        unsafe { strided::fingerprint_into(data.get(), layout, level, threads, values) }
    };
    let hashed = match py {
        Some(py) => release(py, layout.nbytes(), hash),
        None => hash(),
    };
    hashed.ok()?;
    let start = out.len();
    out.resize(start + 8 * values.len(), 0);
    let (xors, mixes) = out[start..].split_at_mut(4 * values.len());
    let places = xors
        .as_chunks_mut()
        .0
        .iter_mut()
        .zip(mixes.as_chunks_mut().0);
    for ((xor, mix), value) in places.zip(values) {
        *xor = value.xor.to_le_bytes();
        *mix = value.mix.to_le_bytes();
    }
    Some(met.id)
}

/// The layouts that tensors had so far.
#[derive(Default)]
struct Layouts(Numbers<u64, Vec<Met>>);

impl Layouts {
    fn find(&self, view: &View<'_>) -> Option<&Met> {
        // Compared one by one: there are few, and calling a function for them takes longer.
        let equal =
            |a: &[i64], b: &[i64]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b);
        let same = |met: &&Met| {
            met.dtype == view.dtype
                && equal(&met.sizes, view.sizes)
                && equal(&met.strides, view.strides)
        };
        self.0.get(&hash_of(view))?.iter().find(same)
    }

    fn add(&mut self, view: &View<'_>, met: Met) {
        self.0.entry(hash_of(view)).or_default().push(met);
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
