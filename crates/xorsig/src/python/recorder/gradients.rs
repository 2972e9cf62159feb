//! Gradients of recorded outputs, attributed to the forward calls that made them.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::Recorder;
use super::hashing::Numbers;
use super::run::{caught, failed};

/// A gradient to record: number of the output of its node, call and slot.
pub type Place = (usize, u64, u32);

/// The gradients of one node to record: most have one.
pub enum Places {
    One(Place),
    Several(Vec<Place>),
}

impl Places {
    fn all(&self) -> &[Place] {
        match self {
            Self::One(place) => std::slice::from_ref(place),
            Self::Several(places) => places,
        }
    }

    /// Each output, with the calls and slots of it.
    pub fn by_output(
        &self,
    ) -> impl Iterator<Item = (usize, impl Iterator<Item = (u64, u32)> + Clone)> {
        let all = self.all();
        let outputs = all.iter().enumerate();
        let outputs = outputs.filter(|(i, place)| !all[..*i].iter().any(|p| p.0 == place.0));
        outputs.map(move |(_, &(output, ..))| {
            let same = all.iter().filter(move |place| place.0 == output);
            (output, same.map(|&(_, call, slot)| (call, slot)))
        })
    }
}

/// A hook before an autograd node runs: it records the gradients that the node gets. Nodes of tensors in
/// plain memory have one only where torch's announcements cannot be read.
///
/// It changes nothing and refers to calls by number only, so that no tensor lives longer.
#[pyclass(frozen, module = "xorsig")]
pub struct GradientHook {
    recorder: Py<Recorder>,
    places: Arc<Mutex<Vec<Place>>>,
}

#[pymethods]
impl GradientHook {
    fn __call__(&self, py: Python<'_>, gradients: &Bound<'_, PyTuple>) -> PyResult<()> {
        let places = self.places.lock();
        let places = places.unwrap_or_else(PoisonError::into_inner).clone();
        let places = Places::Several(places);
        for (output, places) in places.by_output() {
            let Ok(gradient) = gradients.get_item(output) else {
                continue;
            };
            if !gradient.is_none() {
                let recorder = self.recorder.bind(py);
                let recorded = caught(|| Recorder::on_gradient(recorder, &gradient, places));
                if let Err(error) = recorded {
                    failed(recorder, "gradient", error)?;
                }
            }
        }
        Ok(())
    }
}

/// The nodes that have a hook.
#[derive(Default)]
pub struct Hooked {
    /// By what tells nodes apart. A hook lives as long as its node, and longer where the workload holds
    /// the dictionary of the node's hooks, as a list of everything that lives does.
    nodes: Numbers<NodeKey, Weak<Mutex<Vec<Place>>>>,
    sweep_at: usize,
}

/// The sequence number of a node, and its address, or its type where that is not known. Two nodes of
/// one thread never have the same number; an address is given to another node when its own is gone.
pub type NodeKey = (u64, usize);

/// Properties of tensors and nodes, called without attribute look-ups by name.
pub struct Accessors {
    requires_grad: Getter,
    grad_fn: Getter,
    output_number: Getter,
    is_leaf: Getter,
    gradient: Getter,
}

impl Accessors {
    /// From the descriptors of `requires_grad`, `grad_fn`, `output_nr`, `is_leaf` and `grad`.
    pub fn new(py: Python<'_>, descriptors: [Py<PyAny>; 5]) -> PyResult<Self> {
        let [requires_grad, grad_fn, output_number, is_leaf, gradient] = descriptors;
        Ok(Self {
            requires_grad: Getter::new(py, requires_grad)?,
            grad_fn: Getter::new(py, grad_fn)?,
            output_number: Getter::new(py, output_number)?,
            is_leaf: Getter::new(py, is_leaf)?,
            gradient: Getter::new(py, gradient)?,
        })
    }

    /// The node that made a tensor, if gradients flow back through it.
    pub fn node<'py>(&self, tensor: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
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

    /// The gradient of a leaf, if it has one.
    pub fn gradient<'py>(&self, tensor: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if !self.is_leaf.get(tensor)?.is_truthy()? {
            return Ok(None);
        }
        let gradient = self.gradient.get(tensor)?;
        Ok((!gradient.is_none()).then_some(gradient))
    }

    /// Which of its node's outputs a tensor is.
    pub fn output_number(&self, tensor: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.output_number.get(tensor)?.extract()
    }
}

impl Hooked {
    /// Hooks `node`, which has this key, to record the gradient of one of its outputs.
    pub fn hook(
        &mut self,
        recorder: &Bound<'_, Recorder>,
        node: &Bound<'_, PyAny>,
        key: NodeKey,
        place: Place,
    ) -> PyResult<()> {
        if let Some(places) = self.nodes.get(&key).and_then(Weak::upgrade) {
            let mut places = places.lock().unwrap_or_else(PoisonError::into_inner);
            places.push(place);
            return Ok(());
        }
        let places = Arc::new(Mutex::new(vec![place]));
        if self.nodes.len() >= self.sweep_at {
            self.nodes.retain(|_, places| places.strong_count() > 0);
            self.sweep_at = (2 * self.nodes.len()).max(1024);
        }
        self.nodes.insert(key, Arc::downgrade(&places));
        let hook = GradientHook {
            recorder: recorder.clone().unbind(),
            places,
        };
        node.call_method1(intern!(node.py(), "register_prehook"), (hook,))?;
        Ok(())
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
