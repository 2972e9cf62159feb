//! Digests of the random generators that a call may have moved; reading moves none.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::access::allocated_bytes;
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
    path: Vec<Py<PyString>>,
    /// The generator whose state was found.
    known: Mutex<Option<(Py<PyAny>, usize)>>,
}

/// The object behind torch's generator, whose bytes tell whether the generator moved.
///
/// Asking for its state makes a tensor of 5 KiB, which takes as long as recording a small call.
pub struct GeneratorMemory {
    address: usize,
    bytes: usize,
    /// The bytes at the last reading, and its digest.
    last: Mutex<Option<(Box<[u8]>, Digest)>>,
}

impl GeneratorMemory {
    /// Looks whether the bytes tell; `None` if they do not.
    ///
    /// Args:
    ///     address: Of the object behind the generator.
    ///     probe: Of the object behind another generator of the same class.
    ///     moves: Functions that move the probe, each in a way of its own.
    ///     looks: Functions that only read it.
    pub fn prove(
        address: usize,
        probe: usize,
        moves: &[Bound<'_, PyAny>],
        looks: &[Bound<'_, PyAny>],
    ) -> PyResult<Option<Self>> {
        // Either may have got a few bytes more than its size.
        let bytes = allocated_bytes(address).min(allocated_bytes(probe));
        let of = |address| Self {
            address,
            bytes,
            last: Mutex::new(None),
        };
        let (memory, probe) = (of(address), of(probe));
        for (functions, moving) in [(moves, true), (looks, false)] {
            for function in functions {
                let before = probe.now().to_vec();
                function.call0()?;
                if (*probe.now() != *before) != moving {
                    return Ok(None);
                }
            }
        }
        Ok(Some(memory))
    }

    /// The bytes now.
    fn now(&self) -> &[u8] {
        let address = std::ptr::with_exposed_provenance(self.address);
        // SAFETY: a generator of torch's own lives as long as the process, and a probe during the
        // proof; the allocation has so many bytes. A thread that draws numbers without the GIL may
        // write meanwhile; the bytes are compared as a whole and mean nothing by themselves.
        unsafe { std::slice::from_raw_parts(address, self.bytes) }
    }
}

/// Reads torch's, Python's and numpy's global generators.
pub struct Random {
    /// `torch.default_generator.get_state`.
    get_state: Py<PyAny>,
    /// Tells whether that would give something else than last time.
    memory: Option<GeneratorMemory>,
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
        (get_state, memory): (Py<PyAny>, Option<GeneratorMemory>),
        cuda: Py<PyAny>,
        module: Bound<'_, PyAny>,
        modules: Py<PyDict>,
        python: Py<PyAny>,
    ) -> Self {
        let py = module.py();
        let source = |slot: &str, path: &[&str]| Source {
            slot: slot.into(),
            path: path
                .iter()
                .map(|name| PyString::intern(py, name).unbind())
                .collect(),
            known: Mutex::new(None),
        };
        Self {
            get_state,
            memory,
            cuda,
            module: module.unbind(),
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
        let Some(digest) = self.torch(py, reader)? else {
            return self.with_python(py, python_too);
        };
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

    /// The digest of torch's own generator; `None` if its state is no plain tensor.
    fn torch(&self, py: Python<'_>, reader: &mut Reader) -> PyResult<Option<Digest>> {
        let read = |reader: &mut Reader| -> PyResult<Option<Digest>> {
            let state = self.get_state.bind(py).call0()?;
            let Some((address, bytes)) = reader.dense_bytes(&state)? else {
                return Ok(None);
            };
            // SAFETY: the state is a dense tensor of so many bytes, and it is alive.
            unsafe { digest(address, bytes, 1) }.map(Some)
        };
        let Some(memory) = &self.memory else {
            return read(reader);
        };
        let mut last = memory.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = memory.now();
        if let Some((bytes, digest)) = &*last
            && **bytes == *now
        {
            return Ok(Some(digest.clone()));
        }
        // Copied before: what moves meanwhile is seen as a move the next time.
        let bytes = now.into();
        let digest = read(reader)?;
        *last = digest.clone().map(|digest| (bytes, digest));
        Ok(digest)
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
        for name in &source.path {
            generator = generator.getattr(name)?;
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
