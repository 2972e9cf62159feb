//! Fingerprints of torch tensors by their DLPack table.

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;

use super::fingerprint::release;
use crate::dlpack::{DeviceKind, Refusal, TorchTensors};
use crate::fingerprint::layout::LayoutError;
use crate::fingerprint::level::Level;
use crate::fingerprint::strided;
use crate::fingerprint::threads::default_threads;

/// Both values of each region of a torch tensor on the host.
///
/// Address, shape, strides and element size are read through torch's DLPack table, without a
/// Python attribute of the tensor. Function modes and dispatch modes must be off.
///
/// Args:
///     tensor: Exactly a ``torch.Tensor`` or ``torch.nn.Parameter``, strided, on the CPU.
///     regions: Number of regions, 1 to 64.
///
/// Returns:
///     ``8 * regions`` bytes: the XOR values, then the mix values, as little-endian u32.
///
/// Raises:
///     BufferError: The tensor has no plain memory that can be read as it lies, or torch is too
///         old to offer the table; the message says which.
///     ValueError: ``regions`` is out of range.
///
/// Source:
///     Fingerprint specification F1-F4, F8, F12, F13.
#[pyfunction]
#[pyo3(signature = (tensor, regions=4))]
pub fn fingerprint_tensor<'py>(
    py: Python<'py>,
    tensor: &Bound<'py, PyAny>,
    regions: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    static TORCH: PyOnceLock<Option<TorchTensors>> = PyOnceLock::new();
    let torch = TORCH.get_or_try_init(py, || TorchTensors::discover(py))?;
    let Some(torch) = torch else {
        let message = "this torch offers no __dlpack_c_exchange_api__ of version 1";
        return Err(PyBufferError::new_err(message));
    };
    let borrowed = torch.borrow(tensor).map_err(|refusal| {
        let error = PyBufferError::new_err(refusal.to_string());
        if let Refusal::Torch(cause) = refusal {
            error.set_cause(py, Some(cause));
        }
        error
    })?;
    if borrowed.device().kind != DeviceKind::CPU {
        return Err(PyBufferError::new_err("the tensor is not in host memory"));
    }
    let invalid = |error: LayoutError| PyValueError::new_err(error.to_string());
    let layout = borrowed.layout().map_err(invalid)?;
    let address = borrowed.address().expose_provenance();
    let value = release(py, layout.nbytes(), || {
        let pointer = std::ptr::with_exposed_provenance(address);
        // SAFETY: torch has described readable memory of this layout, and the caller's reference
        // keeps it; that nothing resizes or writes it meanwhile is the caller's to ensure.
        unsafe {
            strided::fingerprint(
                pointer,
                &layout,
                regions,
                Level::detect(),
                default_threads(),
            )
        }
    });
    Ok(PyBytes::new(py, &value.map_err(invalid)?.to_bytes()))
}
