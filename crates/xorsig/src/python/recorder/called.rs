//! What Python's rules say about a callee that may do anything.

use std::ops::Deref;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyWeakrefReference};
use pyo3::{ffi, intern};

use super::hashing::Numbers;

/// Methods and classes remembered at most; a program that makes them anew would fill the memory.
const MOST: usize = 4096;

/// What does not depend on the object that a method is bound to.
pub struct Facts {
    pub name: String,
    pub flags: u32,
    /// Whether it can only read what it is given, and what it holds.
    pub reads_only: bool,
    /// Whether it may move torch's random generators.
    pub random: bool,
    /// Whether it may move those of Python and numpy as well.
    pub python_random: bool,
    /// Whether the values that it returns say nothing of their own.
    pub workload_code: bool,
    /// Whether it makes a step of an optimizer and nothing else.
    pub is_step: bool,
    /// Whether it reads gradients that no argument shows.
    pub reads_gradients: bool,
    /// Slots that it overwrites without reading them begin with one of these.
    pub overwritten: Vec<String>,
}

/// Facts about one call; see ``opguard.core.recording.called``.
pub struct Called<'py> {
    facts: Arc<Facts>,
    /// The tensor that it is bound to.
    pub owner: Option<Bound<'py, PyAny>>,
    /// The module that it runs.
    pub module: Option<Bound<'py, PyAny>>,
    /// The optimizers whose state it may change.
    pub optimizers: Vec<Bound<'py, PyAny>>,
    /// Whether the facts hold for every like object of its class.
    by_class: bool,
}

impl Deref for Called<'_> {
    type Target = Facts;
    fn deref(&self) -> &Facts {
        &self.facts
    }
}

impl<'py> Called<'py> {
    /// From the named tuple.
    pub fn from_python(facts: &Bound<'py, PyAny>) -> PyResult<Self> {
        let facts = facts.cast::<PyTuple>()?;
        let some = |item: Bound<'py, PyAny>| (!item.is_none()).then_some(item);
        Ok(Self {
            facts: Arc::new(Facts {
                name: facts.get_item(0)?.extract()?,
                flags: facts.get_item(1)?.extract()?,
                reads_only: facts.get_item(2)?.is_truthy()?,
                random: facts.get_item(3)?.is_truthy()?,
                python_random: facts.get_item(4)?.is_truthy()?,
                workload_code: facts.get_item(5)?.is_truthy()?,
                is_step: facts.get_item(6)?.is_truthy()?,
                reads_gradients: facts.get_item(7)?.is_truthy()?,
                overwritten: facts.get_item(8)?.extract()?,
            }),
            owner: some(facts.get_item(9)?),
            module: some(facts.get_item(10)?),
            optimizers: facts.get_item(11)?.extract()?,
            by_class: facts.get_item(12)?.is_truthy()?,
        })
    }
}

/// A method: its function, and the class of the object that it is bound to.
type Key = (usize, usize);

/// Facts about a method, and which of the parts of a call the object is.
struct Method {
    facts: Arc<Facts>,
    owner: bool,
    module: bool,
    optimizer: bool,
    /// The function and the class.
    keys: [Py<PyWeakrefReference>; 2],
}

/// Facts about a function or a class, and a reference to it.
type Known = (Py<PyWeakrefReference>, Arc<Facts>);

/// Asks Python about callees: once about a method of a class, a class of modules, a function, and a
/// class that is called.
///
/// Functions and classes are referred to weakly: one that the workload drops may hold much.
pub struct Callees {
    /// `types.MethodType`.
    method: Py<PyAny>,
    /// `types.FunctionType`.
    function: Py<PyAny>,
    /// Python's `describe(callee, args, tensors, optimizers)`.
    describe: Py<PyAny>,
    /// Attributes of an object that facts about its class leave out.
    telling: Vec<Py<PyString>>,
    methods: Numbers<Key, Method>,
    /// About modules, by address of the class.
    classes: Numbers<usize, Known>,
    /// By address of the function or class.
    objects: Numbers<usize, Known>,
}

impl Callees {
    /// Knows no callee yet.
    pub fn new(
        [function, method]: [Py<PyAny>; 2],
        describe: Py<PyAny>,
        telling: Vec<Py<PyString>>,
    ) -> Self {
        Self {
            method,
            function,
            describe,
            telling,
            methods: Numbers::default(),
            classes: Numbers::default(),
            objects: Numbers::default(),
        }
    }

    /// Facts about a call whose arguments are plain.
    pub fn plain<'py>(&mut self, callee: &Bound<'py, PyAny>) -> PyResult<Called<'py>> {
        if callee.get_type_ptr().cast() == self.method.as_ptr() {
            return self.method(callee);
        }
        let kind = callee.get_type_ptr().cast();
        if kind == self.function.as_ptr() || std::ptr::eq(kind.cast(), &raw const ffi::PyType_Type)
        {
            return self.object(callee);
        }
        let class = callee.get_type_ptr() as usize;
        if let Some((kind, facts)) = self.classes.get(&class)
            && is_to(kind, callee.get_type_ptr().cast())
            && !self.tells(callee)?
        {
            return Ok(Called {
                facts: Arc::clone(facts),
                owner: None,
                module: Some(callee.clone()),
                optimizers: Vec::new(),
                by_class: true,
            });
        }
        let called = self.ask_plain(callee)?;
        if called.by_class && !self.tells(callee)? {
            if self.classes.len() >= MOST {
                self.classes.clear();
            }
            let kind = PyWeakrefReference::new(&callee.get_type())?;
            let facts = Arc::clone(&called.facts);
            self.classes.insert(class, (kind.unbind(), facts));
        }
        Ok(called)
    }

    fn object<'py>(&mut self, callee: &Bound<'py, PyAny>) -> PyResult<Called<'py>> {
        let address = callee.as_ptr() as usize;
        if let Some((reference, facts)) = self.objects.get(&address)
            && is_to(reference, callee.as_ptr())
        {
            return Ok(Called {
                facts: Arc::clone(facts),
                owner: None,
                module: None,
                optimizers: Vec::new(),
                by_class: false,
            });
        }
        let called = self.ask_plain(callee)?;
        if called.owner.is_none() && called.module.is_none() && called.optimizers.is_empty() {
            if self.objects.len() >= MOST {
                self.objects.clear();
            }
            let reference = PyWeakrefReference::new(callee)?.unbind();
            let known = (reference, Arc::clone(&called.facts));
            self.objects.insert(address, known);
        }
        Ok(called)
    }

    fn method<'py>(&mut self, callee: &Bound<'py, PyAny>) -> PyResult<Called<'py>> {
        let py = callee.py();
        let object = callee.getattr(intern!(py, "__self__"))?;
        let function = callee.getattr(intern!(py, "__func__"))?;
        let key = (function.as_ptr() as usize, object.get_type_ptr() as usize);
        if let Some(method) = self.methods.get(&key)
            && is_to(&method.keys[0], function.as_ptr())
            && is_to(&method.keys[1], object.get_type_ptr().cast())
        {
            let part = |is: bool| is.then(|| object.clone());
            return Ok(Called {
                facts: Arc::clone(&method.facts),
                owner: part(method.owner),
                module: part(method.module),
                optimizers: part(method.optimizer).into_iter().collect(),
                by_class: false,
            });
        }
        let called = self.ask_plain(callee)?;
        let kind = object.get_type();
        // A proxy is what another object says that it is.
        if !object.getattr(intern!(py, "__class__"))?.is(&kind) {
            return Ok(called);
        }
        let Ok(function) = PyWeakrefReference::new(&function) else {
            return Ok(called);
        };
        if self.methods.len() >= MOST {
            self.methods.clear();
        }
        self.methods.insert(
            key,
            Method {
                facts: Arc::clone(&called.facts),
                owner: called.owner.is_some(),
                module: called.module.is_some(),
                optimizer: !called.optimizers.is_empty(),
                keys: [function.unbind(), PyWeakrefReference::new(&kind)?.unbind()],
            },
        );
        Ok(called)
    }

    /// Whether a module has an attribute of its own that facts about it depend on.
    fn tells(&self, module: &Bound<'_, PyAny>) -> PyResult<bool> {
        // SAFETY: the module is alive; the result is a new reference or null with an error.
        let own = unsafe {
            let own = ffi::PyObject_GenericGetDict(module.as_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(module.py(), own)?
        };
        for name in &self.telling {
            if own.contains(name)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn ask_plain<'py>(&self, callee: &Bound<'py, PyAny>) -> PyResult<Called<'py>> {
        let nothing = PyTuple::empty(callee.py());
        self.ask(callee, &nothing, &nothing, nothing.as_any())
    }

    /// Facts about any call.
    pub fn ask<'py>(
        &self,
        callee: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        tensors: &Bound<'py, PyTuple>,
        optimizers: &Bound<'py, PyAny>,
    ) -> PyResult<Called<'py>> {
        let facts = (callee, args, tensors, optimizers);
        Called::from_python(&self.describe.bind(callee.py()).call1(facts)?)
    }
}

/// Whether a weak reference is to this object, which is alive.
fn is_to(reference: &Py<PyWeakrefReference>, object: *mut ffi::PyObject) -> bool {
    // SAFETY: the reference is one; what it gives is borrowed and not used.
    let target = unsafe { ffi::PyWeakref_GetObject(reference.as_ptr()) };
    target == object
}
