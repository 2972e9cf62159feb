//! What torch announces of the nodes that a backward pass runs.
//!
//! torch tells its observers (`at::RecordFunction`, which its profiler is built on) of every node
//! that is about to run: the node's number, the thread that made it, and the gradients that it
//! gets. One observer for all nodes costs less than a Python hook on each, for which torch makes
//! objects of the node, of its hooks and of every gradient.
//!
//! An observer is a C function. Where an announcement holds what it says is no promise of torch: the
//! places are found with nodes whose facts are known, and [`Announcements::prove`] gives up unless
//! exactly one place agrees with all of them.

use std::ffi::{CStr, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use pyo3::prelude::*;

use super::access::{TensorAccess, allocated_bytes, only, symbol};
use super::autograd::{AutogradAccess, Fields, half_word, word};

/// Kinds of announcements, of which nodes are one.
const SCOPES: usize = 10;
const NODES: usize = 1;
/// Words of an announcement that are looked at. It is a little longer; what lies behind it on the stack
/// may look like a part of it.
const WORDS: usize = 40;
/// Words of a gradient among the inputs: its implementation, and what kind of a value it is.
const VALUE: usize = 2;

/// Gets the place for its result, and an announcement; gives the place back.
pub type StartCallback = unsafe extern "C" fn(*mut *mut c_void, *const u8) -> *mut *mut c_void;

/// torch's `RecordFunctionCallback`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Callback {
    start: StartCallback,
    end: *const c_void,
    probability: f64,
    scopes: [bool; SCOPES],
    needs_inputs: bool,
    needs_outputs: bool,
    needs_ids: bool,
}

/// torch's functions.
#[derive(Clone, Copy)]
struct Functions {
    add: unsafe extern "C" fn(Callback) -> u64,
    remove: unsafe extern "C" fn(u64),
    thread: unsafe extern "C" fn() -> u64,
    new_handle: unsafe extern "C" fn(*const *mut c_void, *mut *mut c_void) -> i32,
    delete_handle: unsafe extern "C" fn(*mut c_void) -> i32,
}

impl Functions {
    /// The functions of a loaded library; `None` if one is missing.
    fn load(library: &str) -> Option<Self> {
        let find = |name: &CStr| symbol(library, name);
        // SAFETY: torch declares these functions with these types.
        unsafe {
            Some(Self {
                add: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Callback) -> u64>(
                    find(c"_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE")?,
                ),
                remove: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u64)>(find(
                    c"_ZN2at14removeCallbackEm",
                )?),
                thread: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u64>(find(
                    c"_ZN2at14RecordFunction15currentThreadIdEv",
                )?),
                new_handle: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*const *mut c_void, *mut *mut c_void) -> i32,
                >(find(c"aoti_torch_new_tensor_handle")?),
                delete_handle: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut c_void) -> i32,
                >(find(c"aoti_torch_delete_tensor_object")?),
            })
        }
    }

    /// Has torch call `observer` before every node; gives the number that ends it.
    fn observe(&self, observer: StartCallback) -> u64 {
        let mut scopes = [false; SCOPES];
        scopes[NODES] = true;
        let callback = Callback {
            start: observer,
            end: std::ptr::null(),
            probability: 1.0,
            scopes,
            needs_inputs: true,
            needs_outputs: false,
            needs_ids: false,
        };
        // SAFETY: the structure is torch's, and the function lives as long as the process.
        unsafe { (self.add)(callback) }
    }
}

/// What tells nodes apart: their number, and torch's number of the thread that made them. A thread
/// gives each number once.
pub type Node = (u64, u64);

/// A node whose facts are known.
struct Probe {
    /// Runs the node.
    run: Py<PyAny>,
    /// An output of it, and the number of that.
    tensor: Py<PyAny>,
    output: u32,
    number: u64,
    /// torch's number of this thread when it was made.
    thread: u64,
    /// Implementations of the gradients that it gets; 0 for an absent one.
    gradients: Vec<usize>,
    /// Whether the output is a view.
    view: bool,
}

impl Probe {
    /// Has Python make a node of some outputs, of which one gets a gradient.
    fn make(
        make: &Bound<'_, PyAny>,
        functions: &Functions,
        (outputs, used, view): (u32, u32, bool),
    ) -> PyResult<Self> {
        let (run, tensor, number, gradients) = make.call1((outputs, used, view))?.extract()?;
        Ok(Self {
            run,
            tensor,
            output: used,
            number,
            // SAFETY: it asks for a number and has no precondition.
            thread: unsafe { (functions.thread)() },
            gradients,
            view,
        })
    }

    /// As [`Self::make`], in a thread that ends at once.
    fn make_elsewhere(
        make: &Bound<'_, PyAny>,
        functions: Functions,
        kind: (u32, u32, bool),
    ) -> PyResult<Option<Self>> {
        let (py, make) = (make.py(), make.clone().unbind());
        let made = move || Python::attach(|py| Self::make(make.bind(py), &functions, kind));
        let made = py.detach(|| std::thread::spawn(made).join());
        made.ok().transpose()
    }
}

/// An announcement, and what lies where its inputs may be.
struct Seen {
    words: [usize; WORDS],
    inputs: Vec<usize>,
}

/// What the proof has seen of the thread that runs a probe, if one does.
#[derive(Default)]
struct Watch {
    thread: Option<ThreadId>,
    seen: Vec<Seen>,
    /// Where inputs are, once that is known.
    inputs: Option<usize>,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch {
    thread: None,
    seen: Vec::new(),
    inputs: None,
});

fn watch() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The observer of the proof; other threads may run nodes of their own.
unsafe extern "C" fn note(result: *mut *mut c_void, announcement: *const u8) -> *mut *mut c_void {
    // SAFETY: torch gives a place for a pointer.
    unsafe { result.write(std::ptr::null_mut()) };
    let mut watch = watch();
    if watch.thread != Some(std::thread::current().id()) {
        return result;
    }
    // SAFETY: torch gives an announcement that is longer than what is read. Where inputs are known to be
    // there is an address and a number of values.
    unsafe {
        let words = announcement.cast::<[usize; WORDS]>().read();
        let inputs = match watch.inputs {
            Some(at) if words[at / 8] != 0 => {
                let values = std::ptr::with_exposed_provenance::<usize>(words[at / 8]);
                std::slice::from_raw_parts(values, VALUE * words[at / 8 + 1]).to_vec()
            }
            _ => Vec::new(),
        };
        watch.seen.push(Seen { words, inputs });
    }
    result
}

/// The announcement of each probe, which is run; `None` unless there is one each.
fn announcements(
    py: Python<'_>,
    functions: &Functions,
    probes: &[Probe],
    inputs: Option<usize>,
) -> PyResult<Option<Vec<Seen>>> {
    let mut all = Vec::new();
    for probe in probes {
        *watch() = Watch {
            thread: Some(std::thread::current().id()),
            seen: Vec::new(),
            inputs,
        };
        let observed = functions.observe(note);
        let done = probe.run.call0(py);
        // SAFETY: the number is that of the observer.
        unsafe { (functions.remove)(observed) };
        done?;
        let mut seen = std::mem::take(&mut *watch()).seen;
        match seen.pop() {
            Some(only) if seen.is_empty() => all.push(only),
            _ => return Ok(None),
        }
    }
    Ok(Some(all))
}

/// Proof that announcements can be read, and where their parts lie.
#[derive(Clone, Copy)]
pub struct Announcements {
    functions: Functions,
    /// Of an announcement: the node's number, its inputs, and the thread that made it.
    number: usize,
    inputs: usize,
    thread: usize,
    /// What kind of a value a tensor is among the inputs.
    tensor: u32,
    /// Implementation that stands for no gradient.
    undefined: usize,
    /// Of what autograd keeps of a tensor: the number of the output.
    output: usize,
    /// First word of that where the tensor is no view.
    no_view: usize,
    /// Of a node: the thread that made it.
    node_thread: usize,
}

/// A gradient that a node gets.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Input {
    implementation: *mut c_void,
    kind: u32,
    _unused: u32,
}

impl Announcements {
    /// Looks for the parts; `None` if torch is not as expected.
    ///
    /// Args:
    ///     library: Path of torch's CPU library, loaded already.
    ///     make: Python's `(outputs, used, view)`, which makes a node of so many outputs, and gives a
    ///         function that runs it with a gradient for the used one alone, that output, the
    ///         node's number, and the implementations of the gradients.
    pub fn prove(
        library: &str,
        access: &TensorAccess,
        autograd: &AutogradAccess,
        make: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Self>> {
        // A C function gets the place of such a result as its first argument here alone.
        if !cfg!(all(target_arch = "x86_64", unix)) {
            return Ok(None);
        }
        let Some(functions) = Functions::load(library) else {
            return Ok(None);
        };
        let mut probes = Vec::new();
        for kind in [(1, 0, false), (2, 1, true), (5, 3, true), (2, 1, false)] {
            probes.push(Probe::make(make, &functions, kind)?);
        }
        for kind in [(4, 2, true), (1, 0, false)] {
            probes.extend(Probe::make_elsewhere(make, functions, kind)?);
        }
        let py = make.py();
        let Some(found) = announcements(py, &functions, &probes, None)? else {
            return Ok(None);
        };
        let Some(offsets) = Offsets::of(&probes, &found) else {
            return Ok(None);
        };
        let Some(found) = announcements(py, &functions, &probes, Some(offsets.inputs))? else {
            return Ok(None);
        };
        let undefined = autograd.undefined();
        let Some(tensor) = kind_of_tensors(&probes, &found, undefined) else {
            return Ok(None);
        };
        let Some((output, no_view, node_thread)) = in_tensors(py, access, autograd, &probes) else {
            return Ok(None);
        };
        Ok(Some(Self {
            functions,
            number: offsets.number,
            inputs: offsets.inputs,
            thread: offsets.thread,
            tensor,
            undefined,
            output,
            no_view,
            node_thread,
        }))
    }

    /// torch's number of this thread.
    pub fn this_thread(&self) -> u64 {
        // SAFETY: it asks for a number and has no precondition.
        unsafe { (self.functions.thread)() }
    }

    /// Has torch call `observer` before every node; gives the number that ends it.
    pub fn observe(&self, observer: StartCallback) -> u64 {
        self.functions.observe(observer)
    }

    /// Ends it.
    pub fn end(&self, number: u64) {
        // SAFETY: a number that is not that of an observer does nothing.
        unsafe { (self.functions.remove)(number) };
    }

    /// Which node is announced, and what it gets.
    ///
    /// # Safety
    /// The announcement is one, and is used while the observer runs.
    pub unsafe fn read<'a>(&self, announcement: *const u8) -> (Node, &'a [Input]) {
        let announcement = announcement as usize;
        // SAFETY: by `prove` every announcement of a node has these parts.
        unsafe {
            let number = word(announcement + self.number) as u64;
            let thread = word(announcement + self.thread) as u64;
            let inputs = word(announcement + self.inputs);
            let count = word(announcement + self.inputs + 8);
            let inputs = match inputs {
                0 => &[][..],
                first => {
                    std::slice::from_raw_parts(std::ptr::with_exposed_provenance(first), count)
                }
            };
            ((number, thread), inputs)
        }
    }

    /// The implementation of a gradient; `None` for an absent one.
    pub fn gradient(&self, input: &Input) -> Option<*mut c_void> {
        let defined = input.kind == self.tensor && input.implementation as usize != self.undefined;
        defined.then_some(input.implementation)
    }

    /// Whether the fields of a tensor say which node made it: those of a view may be out of date.
    ///
    /// # Safety
    /// The fields are those of a tensor that is alive, and say that autograd keeps something.
    pub unsafe fn is_current(&self, fields: &Fields) -> bool {
        // SAFETY: what autograd keeps begins with a word.
        unsafe { word(fields.meta as usize) == self.no_view }
    }

    /// The node of a tensor that has one, and the number of the output; `None` if nodes are
    /// told apart otherwise.
    ///
    /// # Safety
    /// The fields are those of a tensor that is alive, and hold its node; `number` is the node's.
    pub unsafe fn node(&self, fields: &Fields, number: u64) -> Option<(Node, usize)> {
        // Nodes that collect gradients of leaves have no number of their own.
        if number == u64::MAX {
            return None;
        }
        // SAFETY: by `prove` they have these parts.
        unsafe {
            let thread = word(fields.node as usize + self.node_thread) as u64;
            let output = half_word(fields.meta as usize + self.output);
            Some(((number, thread), output as usize))
        }
    }

    /// What `take` makes of a reference to a tensor, as the C functions of torch hold it.
    ///
    /// torch's function that is said to steal the reference leaves it: it ends here.
    pub fn with_handle<T>(
        &self,
        implementation: *mut c_void,
        take: impl FnOnce(*mut c_void) -> T,
    ) -> T {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a tensor of the C functions is a pointer to one to an implementation.
        unsafe { (self.functions.new_handle)(&raw const implementation, &raw mut handle) };
        let taken = take(handle);
        if !handle.is_null() {
            // SAFETY: the handle was made above, and is not used after this.
            unsafe { (self.functions.delete_handle)(handle) };
        }
        taken
    }
}

/// Where an announcement has its parts.
struct Offsets {
    number: usize,
    inputs: usize,
    thread: usize,
}

impl Offsets {
    fn of(probes: &[Probe], seen: &[Seen]) -> Option<Self> {
        let enough = |facts: &mut Vec<u64>| {
            facts.sort_unstable();
            facts.dedup();
            facts.len() >= 3
        };
        let threads = probes.iter().map(|probe| probe.thread);
        let counts = probes.iter().map(|probe| probe.gradients.len() as u64);
        if !enough(&mut threads.collect()) || !enough(&mut counts.collect()) {
            return None;
        }
        let all = |holds: &dyn Fn(&Probe, &Seen) -> bool| {
            probes
                .iter()
                .zip(seen)
                .all(|(probe, seen)| holds(probe, seen))
        };
        let end = 8 * WORDS;
        let number = only(8, end, 8, |at| {
            all(&|probe, seen| seen.words[at / 8] as u64 == probe.number)
        })?;
        let inputs = only(8, end - 8, 8, |at| {
            all(&|probe, seen| {
                let (address, count) = (seen.words[at / 8], seen.words[at / 8 + 1]);
                count == probe.gradients.len() && address > end && address.is_multiple_of(8)
            })
        })?;
        // The thread that runs the node is another part, and lies before.
        let thread = only(inputs + 16, end, 8, |at| {
            all(&|probe, seen| seen.words[at / 8] as u64 == probe.thread)
        })?;
        Some(Self {
            number,
            inputs,
            thread,
        })
    }
}

/// What kind of a value tensors are among inputs, if all of the probes' are.
fn kind_of_tensors(probes: &[Probe], seen: &[Seen], undefined: usize) -> Option<u32> {
    let kind = *seen.first()?.inputs.get(1)? as u32;
    let is_tensor = |(value, &gradient): (&[usize; VALUE], &usize)| {
        let expected = if gradient == 0 { undefined } else { gradient };
        value[0] == expected && value[1] as u32 == kind
    };
    let agrees = |(probe, seen): (&Probe, &Seen)| {
        let values = seen.inputs.as_chunks::<VALUE>().0;
        values.len() == probe.gradients.len() && values.iter().zip(&probe.gradients).all(is_tensor)
    };
    probes.iter().zip(seen).all(agrees).then_some(kind)
}

/// Where the number of the output lies, what tells views, and where the thread of a node lies.
fn in_tensors(
    py: Python<'_>,
    access: &TensorAccess,
    autograd: &AutogradAccess,
    probes: &[Probe],
) -> Option<(usize, usize, usize)> {
    let fields = probes.iter().map(|probe| {
        let tensor = probe.tensor.bind(py).as_ptr();
        // SAFETY: the probe is a live tensor of the exact type.
        unsafe { autograd.fields(access.implementation(tensor)) }
    });
    let fields = fields.collect::<Option<Vec<_>>>()?;
    if fields.iter().any(|f| f.meta.is_null() || f.node.is_null()) {
        return None;
    }
    let smallest = |part: &dyn Fn(&Fields) -> usize| {
        let sizes = fields.iter().map(|fields| allocated_bytes(part(fields)));
        sizes.min().unwrap_or(0).min(512)
    };
    let all = |holds: &dyn Fn(&Probe, &Fields) -> bool| {
        let mut both = probes.iter().zip(&fields);
        both.all(|(probe, fields)| holds(probe, fields))
    };
    let output = only(8, smallest(&|f| f.meta as usize), 4, |at| {
        // SAFETY: the place lies in the allocation.
        all(&|probe, f| unsafe { half_word(f.meta as usize + at) } == probe.output)
    })?;
    let node_thread = only(8, smallest(&|f| f.node as usize), 8, |at| {
        // SAFETY: as above.
        all(&|probe, f| unsafe { word(f.node as usize + at) } as u64 == probe.thread)
    })?;
    // SAFETY: as above.
    let first = |f: &Fields| unsafe { word(f.meta as usize) };
    let plain = probes.iter().position(|probe| !probe.view)?;
    let no_view = first(&fields[plain]);
    all(&|probe, f| (first(f) == no_view) != probe.view).then_some((output, no_view, node_thread))
}
