//! Gradients of recorded outputs, attributed to the forward calls that made them.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::Recorder;
use super::hashing::Numbers;
use super::run::{caught, failed};

/// Number of the output of the node, call and slot, of each gradient to record.
pub type Places = Vec<(usize, u64, u32)>;

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
        for (index, (output, ..)) in places.iter().enumerate() {
            let is_same = |place: &&(usize, u64, u32)| place.0 == *output;
            if places[..index].iter().any(|place| is_same(&place)) {
                continue;
            }
            let Ok(gradient) = gradients.get_item(*output) else {
                continue;
            };
            if !gradient.is_none() {
                let places = places.iter().filter(is_same);
                let places = places.map(|&(_, call, slot)| (call, slot));
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

/// Stands in for torch's registration of hooks while a recorder lives.
///
/// For every hook torch calls its own Python function, which makes a handle by which the hook can
/// be removed. That takes longer than recording the call; hooks of the recorder are not removed,
/// and get none. Every other hook is registered by torch's function.
///
/// Args:
///     original: torch's ``_register_hook(hooks, hook)``.
///     hooks_type: Class of the dictionaries of hooks, ``collections.OrderedDict``.
#[pyclass(frozen, module = "xorsig")]
pub struct HookRegistration {
    original: Py<PyAny>,
    hooks_type: Py<PyAny>,
}

#[pymethods]
impl HookRegistration {
    #[new]
    fn new(original: Py<PyAny>, hooks_type: Py<PyAny>) -> Self {
        Self {
            original,
            hooks_type,
        }
    }

    fn __call__<'py>(
        &self,
        hooks: &Bound<'py, PyAny>,
        hook: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = hook.py();
        if !hooks.is_none() || !hook.is_exact_instance_of::<GradientHook>() {
            return self.original.bind(py).call1((hooks, hook));
        }
        let hooks = self.hooks_type.bind(py).call0()?;
        // Numbers of handles are not negative.
        hooks.set_item(-1, hook)?;
        Ok(PyTuple::new(py, [hooks, py.None().into_bound(py)])?.into_any())
    }
}

/// The nodes that have a hook already.
#[derive(Default)]
pub struct Watched {
    /// By what tells nodes apart. A hook lives as long as its node, and longer where the workload
    /// holds the dictionary of the node's hooks, as a list of everything that lives does.
    nodes: Numbers<NodeKey, Weak<Mutex<Places>>>,
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

    fn output_number(&self, tensor: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.output_number.get(tensor)?.extract()
    }
}

impl Watched {
    /// Records the gradient of `tensor`, an output of `node`, under `place`: a call and a slot.
    ///
    /// Args:
    ///     key: Sequence number and address of the node, where they are known.
    pub fn watch(
        &mut self,
        recorder: &Bound<'_, Recorder>,
        accessors: &Accessors,
        (node, key): (&Bound<'_, PyAny>, Option<NodeKey>),
        tensor: &Bound<'_, PyAny>,
        (call, slot): (u64, u32),
    ) -> PyResult<()> {
        let py = node.py();
        let place = (accessors.output_number(tensor)?, call, slot);
        let key = match key {
            Some(key) => key,
            None => {
                let number = node.call_method0(intern!(py, "_sequence_nr"))?;
                (number.extract()?, node.get_type_ptr() as usize)
            }
        };
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
        node.call_method1(intern!(py, "register_prehook"), (hook,))?;
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
