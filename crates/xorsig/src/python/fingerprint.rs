//! Fingerprint functions.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::fingerprint::layout::{Layout, LayoutError};
use crate::fingerprint::level::Level;
use crate::fingerprint::regions::Regions;
use crate::fingerprint::strided;
use crate::fingerprint::threads::default_threads;
use crate::fingerprint::{self as fingerprints, Fingerprint, MAX_REGIONS};

/// The GIL is released for inputs of at least this many bytes. Releasing and taking it back costs
/// about 80 ns (`ctypes.CDLL` against `ctypes.PyDLL`), 3 % of what this many bytes take in a cache.
pub(super) const RELEASE_BYTES: usize = 256 * 1024;

/// The memory of an object with the buffer protocol, held while this value lives.
struct Bytes(PyUntypedBuffer);

impl Bytes {
    fn new(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(data)?;
        if buffer.is_c_contiguous() {
            Ok(Self(buffer))
        } else {
            Err(PyBufferError::new_err(
                "data is not C-contiguous; pass a contiguous copy of it",
            ))
        }
    }

    /// Calls `hash` with the bytes, without the GIL if there are many.
    fn with<T: Send>(&self, py: Python<'_>, hash: impl FnOnce(&[u8]) -> T + Send) -> T {
        let length = self.0.len_bytes();
        let bytes: &[u8] = if length == 0 {
            // The pointer of an empty buffer may be null.
            &[]
        } else {
            // SAFETY: the buffer is C-contiguous (checked in `new`) and stays exported while
            // `self` lives; writers in other threads are the caller's to exclude, as documented.
            unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), length) }
        };
        release(py, length, || hash(bytes))
    }
}

pub(super) fn release<T: Send>(
    py: Python<'_>,
    nbytes: usize,
    hash: impl FnOnce() -> T + Send,
) -> T {
    if nbytes >= RELEASE_BYTES {
        py.detach(hash)
    } else {
        hash()
    }
}

/// The number of threads that an argument or else the environment asks for.
fn thread_count(threads: Option<usize>) -> PyResult<usize> {
    match threads {
        Some(0) => Err(PyValueError::new_err("threads must be at least 1")),
        Some(threads) => Ok(threads),
        None => Ok(default_threads()),
    }
}

fn regions_error() -> PyErr {
    PyValueError::new_err(format!("regions must be 1 to {MAX_REGIONS}"))
}

/// XOR of all little-endian u32 words of ``data``.
///
/// Args:
///     data: Anything with a C-contiguous buffer, taken as bytes; a last, partial word is padded
///         with zero bytes. Nothing may write to it during the call: the GIL is released from
///         256 KiB on.
///     threads: Most threads to share a large input, 8 MiB or more for each. None: what
///         ``XORSIG_THREADS`` says, else the smallest of ``OMP_NUM_THREADS``, the processors
///         that the process may use, and 4. The value does not depend on it.
///
/// Returns:
///     An unsigned 32-bit integer; 0 for no bytes.
///
/// Raises:
///     BufferError: The buffer is not C-contiguous.
///
/// Source:
///     Fingerprint specification F6; vectors in crates/xorsig/vectors.
#[pyfunction]
#[pyo3(signature = (data, *, threads=None))]
pub fn xor(py: Python<'_>, data: &Bound<'_, PyAny>, threads: Option<usize>) -> PyResult<u32> {
    let threads = thread_count(threads)?;
    let mut value = [0];
    Bytes::new(data)?.with(py, |bytes| {
        fingerprints::region_xor_into(Level::detect(), bytes, &mut value, threads)
    });
    Ok(value[0])
}

/// XOR of the words of each region of ``data``: scheme ``flat-u32-le-v1``.
///
/// Args:
///     data: As for ``xor``.
///     regions: Number of contiguous regions, 1 to 64.
///     threads: As for ``xor``.
///
/// Returns:
///     One unsigned 32-bit integer per region; 0 for an empty region.
///
/// Raises:
///     BufferError: The buffer is not C-contiguous.
///     ValueError: ``regions`` or ``threads`` is out of range.
///
/// Source:
///     Fingerprint specification F2-F4.
#[pyfunction]
#[pyo3(signature = (data, regions=4, *, threads=None))]
pub fn region_xor<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    regions: usize,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyTuple>> {
    let threads = thread_count(threads)?;
    let mut values = [0; MAX_REGIONS];
    let values = values.get_mut(..regions).ok_or_else(regions_error)?;
    let valid = Bytes::new(data)?.with(py, |bytes| {
        fingerprints::region_xor_into(Level::detect(), bytes, values, threads)
    });
    if !valid {
        return Err(regions_error());
    }
    PyTuple::new(py, values.iter())
}

/// XOR of the mixed words of each region of ``data``: scheme ``flat-u32-mix-v1``.
///
/// It sees what plain XOR cannot: swapped words, changes that come in pairs, constant tensors.
///
/// Args:
///     data: As for ``xor``.
///     regions: Number of contiguous regions, 1 to 64.
///     threads: As for ``xor``.
///
/// Returns:
///     One unsigned 32-bit integer per region; 0 for an empty region.
///
/// Raises:
///     BufferError: The buffer is not C-contiguous.
///     ValueError: ``regions`` or ``threads`` is out of range.
///
/// Source:
///     Fingerprint specification F13; the mixer is defined in docs/formats/fingerprint.md.
#[pyfunction]
#[pyo3(signature = (data, regions=4, *, threads=None))]
pub fn region_mix<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    regions: usize,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyTuple>> {
    let threads = thread_count(threads)?;
    let bytes = Bytes::new(data)?;
    let length = bytes.0.len_bytes() as u64;
    let mut both = Fingerprint::new(length, regions, Level::detect()).ok_or_else(regions_error)?;
    bytes.with(py, |bytes| both.add_all(bytes, threads));
    PyTuple::new(py, both.values().iter().map(|values| values.mix))
}

/// Half-open byte range of each region of a tensor of ``nbytes`` bytes.
///
/// Args:
///     nbytes: Logical size of the tensor, bytes.
///     regions: Number of regions, 1 to 64.
///
/// Returns:
///     ``(begin, end)`` per region, cut at ``nbytes``; an empty region is ``(x, x)``.
///
/// Raises:
///     ValueError: ``regions`` is out of range.
///
/// Source:
///     Fingerprint specification F3, F7.
#[pyfunction]
#[pyo3(signature = (nbytes, regions=4))]
pub fn byte_ranges(nbytes: u64, regions: usize) -> PyResult<Vec<(u64, u64)>> {
    let split = Regions::new(nbytes, regions).ok_or_else(regions_error)?;
    Ok((0..regions)
        .map(|region| split.byte_range(region))
        .map(|r| (r.start, r.end))
        .collect())
}

/// XOR of each of ``rows`` equal parts of ``data``, each padded on its own.
///
/// Args:
///     data: As for ``xor``.
///     rows: Number of rows; must divide the number of bytes.
///
/// Returns:
///     One unsigned 32-bit integer per row.
///
/// Raises:
///     BufferError: The buffer is not C-contiguous.
///     ValueError: The bytes do not split into ``rows`` equal rows.
///
/// Source:
///     Fingerprint specification F6.
#[pyfunction]
pub fn row_xor(py: Python<'_>, data: &Bound<'_, PyAny>, rows: usize) -> PyResult<Vec<u32>> {
    let bytes = Bytes::new(data)?;
    let length = bytes.0.len_bytes();
    if rows == 0 && length == 0 {
        return Ok(Vec::new());
    }
    if rows == 0 || !length.is_multiple_of(rows) {
        let message = format!("{length} bytes do not split into {rows} equal rows");
        return Err(PyValueError::new_err(message));
    }
    let row_bytes = length / rows;
    if row_bytes == 0 {
        let mut values = Vec::new();
        values
            .try_reserve_exact(rows)
            .map_err(|_| PyValueError::new_err("rows is too large"))?;
        values.resize(rows, 0);
        return Ok(values);
    }
    Ok(bytes.with(py, |bytes| {
        bytes
            .chunks_exact(row_bytes)
            .map(fingerprints::xor)
            .collect()
    }))
}

/// Both values of each region of the tensor in memory at ``address``.
///
/// Elements are taken in logical row-major order, whatever the strides, without a copy of the
/// whole tensor. The description is trusted: a wrong one reads memory that is not the tensor's.
/// Nothing may write to the tensor during the call; the GIL is released from 256 KiB on.
///
/// Args:
///     address: Address of the first element; ignored if there are no elements.
///     shape: Lengths of the dimensions.
///     strides: Distances of the dimensions in elements; may be 0 or negative.
///     itemsize: Size of an element, 1 to 1024 bytes.
///     regions: Number of regions, 1 to 64.
///     threads: As for ``xor``; a tensor that is not dense is read by one.
///
/// Returns:
///     ``8 * regions`` bytes: the XOR values, then the mix values, as little-endian u32.
///
/// Raises:
///     ValueError: The description is contradictory or too large for memory, ``address`` is 0
///         although there are elements, or ``regions`` or ``threads`` is out of range.
///
/// Source:
///     Fingerprint specification F1-F4, F8, F13.
#[pyfunction]
#[pyo3(signature = (address, shape, strides, itemsize, regions=4, *, threads=None))]
pub fn fingerprint<'py>(
    py: Python<'py>,
    address: usize,
    shape: Vec<usize>,
    strides: Vec<isize>,
    itemsize: usize,
    regions: usize,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyBytes>> {
    let threads = thread_count(threads)?;
    let invalid = |error: LayoutError| PyValueError::new_err(error.to_string());
    let layout = Layout::new(&shape, &strides, itemsize).map_err(invalid)?;
    let value = release(py, layout.nbytes(), || {
        let pointer = std::ptr::with_exposed_provenance(address);
        // SAFETY: that the address and the layout describe readable memory is this function's
        // documented precondition; Python cannot prove it and this code cannot check it.
        unsafe { strided::fingerprint(pointer, &layout, regions, Level::detect(), threads) }
    });
    Ok(PyBytes::new(py, &value.map_err(invalid)?.to_bytes()))
}
