//! Digests of the random generators that a call may have moved; reading moves none.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::reading::Reader;

use crate::fingerprint::layout::Layout;
use crate::fingerprint::level::Level;
use crate::fingerprint::strided;

/// Words of the state of Python's generator, and of numpy's: 624 and a position.
const WORDS: usize = 625;

/// A digest, and the text that stands for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Digest {
    /// Of a state in memory.
    Bytes([u8; 8]),
    /// As Python spells it.
    Text(String),
}

impl Digest {
    /// The text, as Python would spell it.
    pub fn text(&self) -> String {
        match self {
            Self::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// Digests by slot.
pub type Digests = Vec<(Arc<str>, Digest)>;

/// A generator whose state lies in memory at a place that Python has found.
struct Source {
    slot: Arc<str>,
    /// Attributes that lead from the module to the generator.
    path: &'static [&'static str],
    /// The generator whose state was found.
    known: Mutex<Option<(Py<PyAny>, usize)>>,
}

/// Reads torch's, Python's and numpy's global generators.
pub struct Random {
    /// `torch.default_generator.get_state`.
    get_state: Py<PyAny>,
    /// The module `torch.cuda`.
    cuda: Py<PyAny>,
    /// The module `random`.
    module: Py<PyAny>,
    /// `sys.modules`.
    modules: Py<PyDict>,
    /// Python's `RandomState`: `digests(python_too)`, `python_source()` and `numpy_source()`.
    python: Py<PyAny>,
    torch_slot: Arc<str>,
    sources: [Source; 2],
}

impl Random {
    /// Binds what is given; see the fields.
    pub fn new(
        get_state: Py<PyAny>,
        cuda: Py<PyAny>,
        module: Py<PyAny>,
        modules: Py<PyDict>,
        python: Py<PyAny>,
    ) -> Self {
        let source = |slot: &str, path| Source {
            slot: slot.into(),
            path,
            known: Mutex::new(None),
        };
        Self {
            get_state,
            cuda,
            module,
            modules,
            python,
            torch_slot: "rng.torch".into(),
            sources: [
                source("rng.python", &["_inst"]),
                source("rng.numpy", &["mtrand", "_rand", "_bit_generator"]),
            ],
        }
    }

    /// Digests of torch's generators, and of those that no torch operation moves.
    pub fn digests(
        &self,
        py: Python<'_>,
        reader: &mut Reader,
        python_too: bool,
    ) -> PyResult<Digests> {
        let initialized = intern!(py, "_initialized");
        if self.cuda.getattr(py, initialized)?.is_truthy(py)? {
            return self.with_python(py, python_too);
        }
        let state = self.get_state.bind(py).call0()?;
        let Some((address, bytes)) = reader.dense_bytes(&state)? else {
            return self.with_python(py, python_too);
        };
        // SAFETY: the state is a dense tensor of so many bytes, and it is alive.
        let digest = unsafe { digest(address, bytes, 1) }?;
        let mut found = vec![(Arc::clone(&self.torch_slot), digest)];
        if python_too {
            let [python, numpy] = &self.sources;
            if let Some(digest) = self.python(py, python)? {
                found.push((Arc::clone(&python.slot), digest));
            }
            let loaded = self
                .modules
                .bind(py)
                .get_item(intern!(py, "numpy.random"))?;
            if let Some(loaded) = loaded
                && let Some(digest) = self.in_place(numpy, &loaded, intern!(py, "numpy_source"))?
            {
                found.push((Arc::clone(&numpy.slot), digest));
            }
        }
        Ok(found)
    }

    fn python(&self, py: Python<'_>, source: &Source) -> PyResult<Option<Digest>> {
        let module = self.module.bind(py);
        let ask = intern!(py, "python_source");
        // A second normal number that waits for its turn is a part of the state.
        let generator = module.getattr(intern!(py, "_inst"))?;
        let waiting = generator.getattr(intern!(py, "gauss_next"));
        if waiting.is_ok_and(|waiting| waiting.is_none()) {
            return self.in_place(source, module, ask);
        }
        let text = self.python.bind(py).call_method0(ask)?.extract()?;
        Ok(Some(Digest::Text(text)))
    }

    /// The digest of the words of a generator's state.
    fn in_place(
        &self,
        source: &Source,
        module: &Bound<'_, PyAny>,
        ask: &Bound<'_, PyString>,
    ) -> PyResult<Option<Digest>> {
        let py = module.py();
        let mut generator = module.clone();
        for name in source.path {
            generator = generator.getattr(PyString::intern(py, name))?;
        }
        let mut known = source.known.lock().unwrap_or_else(PoisonError::into_inner);
        let address = match &*known {
            Some((held, address)) if held.is(&generator) => *address,
            _ => {
                let place = self.python.bind(py).call_method0(ask)?;
                if place.is_none() {
                    return Ok(None);
                }
                let Ok(address) = place.extract::<usize>() else {
                    return Ok(Some(Digest::Text(place.extract()?)));
                };
                *known = Some((generator.unbind(), address));
                address
            }
        };
        // SAFETY: Python has found the words of the generator's state there; it is alive.
        unsafe { digest(address, WORDS, 4) }.map(Some)
    }

    fn with_python(&self, py: Python<'_>, python_too: bool) -> PyResult<Digests> {
        let found = self
            .python
            .call_method1(py, intern!(py, "digests"), (python_too,))?;
        let found = found.bind(py).cast::<PyDict>()?.iter();
        found
            .map(|(slot, text)| {
                let slot = slot.extract::<String>()?;
                Ok((slot.into(), Digest::Text(text.extract()?)))
            })
            .collect()
    }
}

/// # Safety
/// `count` items of `itemsize` bytes can be read at `address`.
unsafe fn digest(address: usize, count: usize, itemsize: usize) -> PyResult<Digest> {
    let invalid = |error: crate::fingerprint::layout::LayoutError| {
        pyo3::exceptions::PyValueError::new_err(error.to_string())
    };
    let layout = Layout::new(&[count], &[1], itemsize).map_err(invalid)?;
    let address = std::ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: forwarded.
    let found = unsafe { strided::fingerprint(address, &layout, 1, Level::detect(), 1) };
    let found = found.map_err(invalid)?;
    let mut bytes = [0; 8];
    if let Some(value) = found.values().first() {
        bytes[..4].copy_from_slice(&value.xor.to_le_bytes());
        bytes[4..].copy_from_slice(&value.mix.to_le_bytes());
    }
    Ok(Digest::Bytes(bytes))
}
