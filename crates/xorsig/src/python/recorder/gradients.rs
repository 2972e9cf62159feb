//! Gradients of recorded outputs, attributed to the forward calls that made them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, PyVisit, intern};

use super::Recorder;

/// Calls and slots of the gradients of a node's outputs, by number of the output.
pub type Places = Vec<(usize, Vec<(u64, u32)>)>;

/// A hook before an autograd node runs: it records the gradients that the node gets.
///
/// It changes nothing and refers to calls by number only, so that no tensor lives longer.
#[pyclass(frozen, module = "xorsig")]
pub struct GradientHook {
    recorder: Py<Recorder>,
    places: Arc<Mutex<Places>>,
}

#[pymethods]
impl GradientHook {
    fn __call__(&self, py: Python<'_>, gradients: &Bound<'_, PyTuple>) -> PyResult<()> {
        let places = self
            .places
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for (output, places) in places {
            let Ok(gradient) = gradients.get_item(output) else {
                continue;
            };
            if !gradient.is_none() {
                Recorder::on_gradient(self.recorder.bind(py), &gradient, &places)?;
            }
        }
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.recorder)
    }
}

/// The nodes that have a hook already.
#[derive(Default)]
pub struct Watched {
    /// By sequence number and type of the node. A hook lives exactly as long as its node, and two
    /// nodes of one thread never have the same number.
    nodes: HashMap<(u64, usize), Weak<Mutex<Places>>>,
    sweep_at: usize,
}

/// Properties of tensors and nodes, called without attribute look-ups by name.
pub struct Accessors {
    requires_grad: Getter,
    grad_fn: Getter,
    output_number: Getter,
    version: Getter,
    is_leaf: Getter,
    gradient: Getter,
}

impl Accessors {
    /// From the descriptors of `requires_grad`, `grad_fn`, `output_nr`, `_version`, `is_leaf` and
    /// `grad`.
    pub fn new(py: Python<'_>, descriptors: [Py<PyAny>; 6]) -> PyResult<Self> {
        let [
            requires_grad,
            grad_fn,
            output_number,
            version,
            is_leaf,
            gradient,
        ] = descriptors;
        Ok(Self {
            requires_grad: Getter::new(py, requires_grad)?,
            grad_fn: Getter::new(py, grad_fn)?,
            output_number: Getter::new(py, output_number)?,
            version: Getter::new(py, version)?,
            is_leaf: Getter::new(py, is_leaf)?,
            gradient: Getter::new(py, gradient)?,
        })
    }

    /// The node that made a tensor, if gradients flow back through it.
    pub fn node<'py>(&self, tensor: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if !self.requires_grad(tensor)? {
            return Ok(None);
        }
        match self.grad_fn.get(tensor) {
            Ok(node) => Ok((!node.is_none()).then_some(node)),
            // A view whose base was changed in place so that its history is undefined.
            Err(error) if error.is_instance_of::<PyRuntimeError>(tensor.py()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a tensor gets gradients.
    pub fn requires_grad(&self, tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.requires_grad.get(tensor)?.is_truthy()
    }

    /// How often a tensor was written to through the dispatcher.
    pub fn version(&self, tensor: &Bound<'_, PyAny>) -> PyResult<i64> {
        self.version.get(tensor)?.extract()
    }

    /// The gradient of a leaf, if it has one.
    pub fn gradient<'py>(&self, tensor: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if !self.is_leaf.get(tensor)?.is_truthy()? {
            return Ok(None);
        }
        let gradient = self.gradient.get(tensor)?;
        Ok((!gradient.is_none()).then_some(gradient))
    }

    fn output_number(&self, tensor: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.output_number.get(tensor)?.extract()
    }
}

impl Watched {
    /// Records the gradient of `tensor`, an output of `node`, under `call` and `slot`.
    pub fn watch(
        &mut self,
        recorder: &Bound<'_, Recorder>,
        accessors: &Accessors,
        node: &Bound<'_, PyAny>,
        tensor: &Bound<'_, PyAny>,
        place: (u64, u32),
    ) -> PyResult<()> {
        let py = node.py();
        let output = accessors.output_number(tensor)?;
        let sequence = node
            .call_method0(intern!(py, "_sequence_nr"))?
            .extract::<u64>()?;
        let key = (sequence, node.get_type_ptr() as usize);
        if let Some(places) = self.nodes.get(&key).and_then(Weak::upgrade) {
            add(&places, output, place);
            return Ok(());
        }
        let places = Arc::new(Mutex::new(vec![(output, vec![place])]));
        if self.nodes.len() >= self.sweep_at {
            self.nodes.retain(|_, places| places.strong_count() > 0);
            self.sweep_at = (2 * self.nodes.len()).max(1024);
        }
        self.nodes.insert(key, Arc::downgrade(&places));
        let hook = GradientHook {
            recorder: recorder.clone().unbind(),
            places,
        };
        node.call_method1(intern!(py, "register_prehook"), (hook,))?;
        Ok(())
    }
}

fn add(places: &Mutex<Places>, output: usize, place: (u64, u32)) {
    let mut places = places.lock().unwrap_or_else(PoisonError::into_inner);
    match places.iter_mut().find(|(number, _)| *number == output) {
        Some((_, all)) => all.push(place),
        None => places.push((output, vec![place])),
    }
}

/// A property of a C type, read through its descriptor.
struct Getter {
    descriptor: Py<PyAny>,
    get: pyo3::ffi::descrgetfunc,
}

impl Getter {
    fn new(py: Python<'_>, descriptor: Py<PyAny>) -> PyResult<Self> {
        let kind = descriptor.bind(py).get_type();
        // SAFETY: the slot of a type holds null or a function of the slot's type.
        let get = unsafe {
            let slot = pyo3::ffi::PyType_GetSlot(kind.as_type_ptr(), pyo3::ffi::Py_tp_descr_get);
            std::mem::transmute::<*mut std::ffi::c_void, Option<pyo3::ffi::descrgetfunc>>(slot)
        };
        let get = get.ok_or_else(|| {
            pyo3::exceptions::PyTypeError::new_err("a tensor's property is not a descriptor")
        })?;
        Ok(Self { descriptor, get })
    }

    fn get<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let kind = object.get_type_ptr().cast();
        // SAFETY: the function belongs to the descriptor's type; all three are alive.
        unsafe {
            let value = (self.get)(self.descriptor.as_ptr(), object.as_ptr(), kind);
            Bound::from_owned_ptr_or_err(object.py(), value)
        }
    }
}
