//! Direct access to the fields of torch tensors that recording needs.
//!
//! Through Python attributes, what a fingerprint needs (address, shape, strides, element type,
//! size of the storage, dispatch keys) costs several microseconds a tensor, more than hashing a
//! small one. torch exports C functions with a stable ABI for most of it; they take the address
//! of a tensor's implementation, which the Python object holds. Where it holds it, and where the
//! implementation holds its dispatch keys, is not promised by torch: both places are found by
//! looking at tensors whose values are known, and [`TensorAccess::prove`] gives up unless every
//! one of them agrees. Without a proof tensors are read through Python.

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_void};

use pyo3::prelude::*;

type Handle = *const *mut c_void;
type Get<T> = unsafe extern "C" fn(Handle, *mut T) -> i32;

/// torch's functions with a stable C ABI; each returns 0 for success.
struct Functions {
    data_ptr: Get<*mut c_void>,
    dim: Get<i64>,
    sizes: Get<*const i64>,
    strides: Get<*const i64>,
    dtype: Get<i32>,
    storage_size: Get<i64>,
    storage_offset: Get<i64>,
}

/// A tensor whose implementation and dispatch keys are known otherwise.
pub struct Probe<'py> {
    /// The tensor, of the exact type `torch.Tensor`.
    pub tensor: Bound<'py, PyAny>,
    /// Address of its implementation.
    pub implementation: usize,
    /// Bits of its dispatch keys.
    pub keys: u64,
    /// Address of its storage.
    pub storage: usize,
}

/// The parts of a strided tensor in memory; valid as long as nothing runs that may change it.
pub struct View<'a> {
    /// Address of the first element; null if there is none.
    pub data: *const u8,
    /// Lengths of the dimensions.
    pub sizes: &'a [i64],
    /// Distances of the dimensions in elements.
    pub strides: &'a [i64],
    /// torch's number of the element type.
    pub dtype: i32,
    /// Bytes of the storage.
    pub storage_bytes: i64,
    /// Elements before the first one.
    pub storage_offset: i64,
}

/// Proof that fields of a tensor can be found, and where.
pub struct TensorAccess {
    implementation_offset: usize,
    keys_offset: usize,
    storage_offset: usize,
    functions: Functions,
}

impl TensorAccess {
    /// Looks for the fields; `None` if torch is not as expected.
    ///
    /// Args:
    ///     library: Path of torch's CPU library, loaded already.
    ///     object_bytes: Size of a `torch.Tensor` object.
    ///     probes: Tensors of the exact type `torch.Tensor`, of at least three sets of keys and three
    ///         storages.
    pub fn prove(library: &str, object_bytes: usize, probes: &[Probe<'_>]) -> Option<Self> {
        let sets = probes
            .iter()
            .map(|probe| probe.keys)
            .collect::<HashSet<_>>();
        let storages = probes.iter().map(|probe| probe.storage);
        if sets.len() < 3 || storages.collect::<HashSet<_>>().len() < 3 {
            return None;
        }
        let implementation_offset = only(16, object_bytes, 8, |offset| {
            probes.iter().all(|probe| {
                let object = probe.tensor.as_ptr().cast::<u8>();
                // SAFETY: every word lies inside the live Python object of the probe.
                unsafe { object.add(offset).cast::<usize>().read() == probe.implementation }
            })
        })?;
        let size = probes
            .iter()
            .map(|probe| allocated_bytes(probe.implementation))
            .min()?;
        let keys_offset = only(16, size.min(512), 8, |offset| {
            probes.iter().all(|probe| {
                let object = std::ptr::with_exposed_provenance::<u8>(probe.implementation);
                // SAFETY: the word lies inside the allocation, whose size was asked for above.
                unsafe { object.add(offset).cast::<u64>().read() == probe.keys }
            })
        })?;
        let storage_offset = only(16, size.min(512), 8, |offset| {
            probes.iter().all(|probe| {
                let object = std::ptr::with_exposed_provenance::<u8>(probe.implementation);
                // SAFETY: as above.
                unsafe { object.add(offset).cast::<usize>().read() == probe.storage }
            })
        })?;
        Some(Self {
            implementation_offset,
            keys_offset,
            storage_offset,
            functions: Functions::load(library)?,
        })
    }

    /// The implementation behind a Python tensor.
    ///
    /// # Safety
    /// `tensor` is a live object of the exact type `torch.Tensor` or `torch.nn.Parameter`.
    pub unsafe fn implementation(&self, tensor: *mut pyo3::ffi::PyObject) -> *mut c_void {
        // SAFETY: by `prove` every object of these types holds the address here.
        unsafe {
            tensor
                .cast::<u8>()
                .add(self.implementation_offset)
                .cast::<*mut c_void>()
                .read()
        }
    }

    /// The dispatch keys of an implementation.
    ///
    /// # Safety
    /// `implementation` came from [`Self::implementation`], and its tensor is alive.
    pub unsafe fn keys(&self, implementation: *mut c_void) -> u64 {
        // SAFETY: by `prove` every implementation holds its keys here.
        unsafe {
            implementation
                .cast::<u8>()
                .add(self.keys_offset)
                .cast::<u64>()
                .read()
        }
    }

    /// Address of the storage.
    ///
    /// # Safety
    /// As for [`Self::keys`].
    pub unsafe fn storage(&self, implementation: *mut c_void) -> usize {
        // SAFETY: by `prove` every implementation holds the address here.
        unsafe {
            implementation
                .cast::<u8>()
                .add(self.storage_offset)
                .cast::<usize>()
                .read()
        }
    }

    /// Address of the first element; `None` where torch refuses one.
    ///
    /// # Safety
    /// As for [`Self::view`].
    pub unsafe fn data(&self, implementation: &*mut c_void) -> Option<usize> {
        let mut data = std::ptr::null_mut();
        // SAFETY: as in `view`.
        let failed = unsafe { (self.functions.data_ptr)(implementation, &raw mut data) };
        (failed == 0).then_some(data as usize)
    }

    /// The fields of a strided tensor with memory; `None` where torch refuses one.
    ///
    /// # Safety
    /// `implementation` points to an implementation whose keys say that it is a plain strided
    /// tensor; it lives and keeps its shape while the view is used.
    pub unsafe fn view<'a>(&self, implementation: &'a *mut c_void) -> Option<View<'a>> {
        let functions = &self.functions;
        let tensor: Handle = implementation;
        let mut data = std::ptr::null_mut();
        let (mut dim, mut dtype, mut storage_bytes, mut storage_offset) = (0i64, 0i32, 0i64, 0i64);
        let (mut sizes, mut strides) = (std::ptr::null(), std::ptr::null());
        // SAFETY: a tensor handle of the C ABI is a pointer to a tensor, which is one pointer to
        // an implementation; each function writes one value of the declared type.
        let failed = unsafe {
            (functions.dim)(tensor, &raw mut dim)
                | (functions.sizes)(tensor, &raw mut sizes)
                | (functions.strides)(tensor, &raw mut strides)
                | (functions.dtype)(tensor, &raw mut dtype)
                | (functions.storage_size)(tensor, &raw mut storage_bytes)
                | (functions.storage_offset)(tensor, &raw mut storage_offset)
                | (functions.data_ptr)(tensor, &raw mut data)
        };
        let dim = usize::try_from(dim).ok()?;
        if failed != 0 || (dim > 0 && (sizes.is_null() || strides.is_null())) {
            return None;
        }
        let slice = |first: *const i64| match dim {
            0 => &[][..],
            // SAFETY: torch keeps `dim` numbers here as long as the shape stays.
            _ => unsafe { std::slice::from_raw_parts(first, dim) },
        };
        Some(View {
            data: data.cast_const().cast(),
            sizes: slice(sizes),
            strides: slice(strides),
            dtype,
            storage_bytes,
            storage_offset,
        })
    }
}

impl Functions {
    /// The functions of a loaded library; `None` if one is missing.
    fn load(library: &str) -> Option<Self> {
        let find = |name: &CStr| symbol(library, name);
        // A lazily cloned storage is copied when its address for writing is asked for.
        let data_ptr =
            find(c"torch_get_const_data_ptr").or_else(|| find(c"aoti_torch_get_data_ptr"))?;
        // SAFETY: torch declares these functions with these types in its C header.
        unsafe {
            Some(Self {
                data_ptr: std::mem::transmute::<*mut c_void, Get<*mut c_void>>(data_ptr),
                dim: std::mem::transmute::<*mut c_void, Get<i64>>(find(c"aoti_torch_get_dim")?),
                sizes: std::mem::transmute::<*mut c_void, Get<*const i64>>(find(
                    c"aoti_torch_get_sizes",
                )?),
                strides: std::mem::transmute::<*mut c_void, Get<*const i64>>(find(
                    c"aoti_torch_get_strides",
                )?),
                dtype: std::mem::transmute::<*mut c_void, Get<i32>>(find(c"aoti_torch_get_dtype")?),
                storage_size: std::mem::transmute::<*mut c_void, Get<i64>>(find(
                    c"aoti_torch_get_storage_size",
                )?),
                storage_offset: std::mem::transmute::<*mut c_void, Get<i64>>(find(
                    c"aoti_torch_get_storage_offset",
                )?),
            })
        }
    }
}

/// A function of a library that is loaded already; `None` if it has none of that name.
pub fn symbol(library: &str, name: &CStr) -> Option<*mut c_void> {
    let path = CString::new(library).ok()?;
    // SAFETY: the path is a C string; a library that is loaded already runs no initialiser.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    // SAFETY: both arguments are valid; the result is checked.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

/// Bytes of the allocation of a live heap object of its own.
pub fn allocated_bytes(address: usize) -> usize {
    // SAFETY: the caller names a live object that was allocated by itself; nothing is written.
    unsafe { libc::malloc_usable_size(address as *mut c_void) }
}

/// The only multiple of `step` in `from..to` that satisfies `holds`, reading `step` bytes each.
pub fn only(from: usize, to: usize, step: usize, holds: impl Fn(usize) -> bool) -> Option<usize> {
    let mut found = (from..=to.saturating_sub(step))
        .step_by(step)
        .filter(|&offset| holds(offset));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}
