//! The extension module `xorsig._xorsig`: arguments in, Rust out, errors mapped, no logic.

mod arrow;
mod callsite;
mod capture;
mod errors;
mod fingerprint;
mod forms;
mod pending;
mod recorder;
mod report;
mod tables;
mod tensor;

use mimalloc::MiMalloc;
use pyo3::prelude::*;

// Blocks of the recorder's live as long as the program. Among the workload's in the C library's
// heap they would keep its freed large ones from growing together again, so that tensors of the
// same sizes take new memory step after step (27 MiB a step with glibc 2.36).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Native half of the package `xorsig`; import that instead.
///
/// The recorder reads torch's objects under the GIL, where no other thread can take them away: a
/// free-threaded interpreter is to turn it on.
#[pymodule(gil_used = true)]
mod _xorsig {
    #[pymodule_export]
    use super::callsite::CallSite;
    #[pymodule_export]
    use super::capture::CaptureWriter;
    #[pymodule_export]
    use super::fingerprint::{byte_ranges, fingerprint, region_mix, region_xor, row_xor, xor};
    #[pymodule_export]
    use super::forms::{IterateSite, SubscriptSite};
    #[pymodule_export]
    use super::pending::PendingSignature;
    #[pymodule_export]
    use super::recorder::{CallFrame, Effects, KnownParameters, Recorder};
    #[pymodule_export]
    use super::report::write_perfetto;
    #[pymodule_export]
    use super::tables::{materialize, read_receipt, verify_capture, write_receipt};
    #[pymodule_export]
    use super::tensor::fingerprint_tensor;

    use crate::fingerprint::level::Level;
    use crate::{capture, fingerprint as fingerprints};
    use pyo3::exceptions::PyValueError;
    use pyo3::panic::PanicException;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // A wrong XORSIG_BACKEND is reported here, not at the first tensor.
        Level::select().map_err(|error| PyValueError::new_err(error.to_string()))?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("FORMAT_VERSION", capture::FORMAT_VERSION)?;
        module.add("XOR_SCHEME", fingerprints::XOR_SCHEME)?;
        module.add("MIX_SCHEME", fingerprints::MIX_SCHEME)?;
        let panic = module.py().get_type::<PanicException>();
        module.add("PanicException", panic)?;
        Ok(())
    }
}
