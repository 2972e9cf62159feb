//! The gradients that torch announces: where each is to be recorded, and recording it.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;

use super::super::errors::from_write;
use super::announced::{Announcements, Node};
use super::gradients::{Place, Places};
use super::hashing::Numbers;
use super::run::{caught, failed};
use super::{Recorder, Shared};
use crate::capture::fork::Process;

/// Nodes of other threads that are remembered at least.
const OF_OTHERS: usize = 1 << 12;

/// Where gradients of nodes are to be recorded.
///
/// The numbers of a thread's nodes follow one another, so that those of the recorded thread are kept by
/// number in a ring: each step writes where the last one stopped, and reads what it has just written.
/// A map of them all would be looked up in memory far away. Those that have not run when the ring comes
/// round go to a map: their graph may still be there. Of those that have, a pass so late that keeps its graph
/// for another one is not recorded again.
#[derive(Default)]
struct Awaited {
    /// Numbers of nodes in the ring; when a node is gone nothing says so.
    ring: usize,
    /// Older nodes that may wait for their gradients.
    late: usize,
    /// Thread that makes the nodes of the ring: that of the first one.
    thread: Option<u64>,
    /// One more than the number of the node; 0 where there is none. Empty until the first one.
    numbers: Vec<u64>,
    outputs: Vec<u32>,
    calls: Vec<u64>,
    slots: Vec<u32>,
    /// Whether the node has run.
    ran: Vec<bool>,
    /// All places of the nodes of the ring that have more than one.
    several: Numbers<u64, Vec<Place>>,
    /// Older nodes that have not run.
    waiting: Numbers<u64, Vec<Place>>,
    /// Whether some of those were forgotten.
    forgot: bool,
    /// Nodes of other threads.
    recent: Numbers<Node, Vec<Place>>,
    older: Numbers<Node, Vec<Place>>,
}

impl Awaited {
    fn new(ring: usize, late: usize) -> Self {
        Self {
            ring,
            late,
            ..Self::default()
        }
    }

    fn add(&mut self, node: Node, place: Place) {
        let (number, thread) = node;
        if *self.thread.get_or_insert(thread) != thread {
            return self.add_of_others(node, place);
        }
        if self.numbers.is_empty() {
            // Zeros take no memory before something is written there.
            self.numbers = vec![0; self.ring];
            self.outputs = vec![0; self.ring];
            self.calls = vec![0; self.ring];
            self.slots = vec![0; self.ring];
            self.ran = vec![false; self.ring];
        }
        let at = number as usize % self.ring;
        let (output, call, slot) = place;
        if self.numbers[at] == number + 1 {
            let first = self.place(at);
            let places = self.several.entry(number).or_insert_with(|| vec![first]);
            places.push(place);
            return;
        }
        if let Some(places) = self.waiting.get_mut(&number) {
            places.push(place);
            return;
        }
        if let Some(replaced) = self.numbers[at].checked_sub(1) {
            if replaced > number {
                // An output that was made before the ring came round.
                self.wait(number, vec![place]);
                return;
            }
            let several = self.several.remove(&replaced);
            if !self.ran[at] {
                self.wait(replaced, several.unwrap_or_else(|| vec![self.place(at)]));
            }
        }
        self.ran[at] = false;
        self.numbers[at] = number + 1;
        self.outputs[at] = output as u32;
        self.calls[at] = call;
        self.slots[at] = slot;
    }

    fn wait(&mut self, number: u64, places: Vec<Place>) {
        if self.waiting.len() >= self.late {
            self.waiting = Numbers::default();
            self.forgot = true;
        }
        self.waiting.insert(number, places);
    }

    fn place(&self, at: usize) -> Place {
        (self.outputs[at] as usize, self.calls[at], self.slots[at])
    }

    fn add_of_others(&mut self, node: Node, place: Place) {
        if self.recent.len() >= OF_OTHERS {
            self.older = std::mem::take(&mut self.recent);
        }
        let older = &mut self.older;
        let places = self.recent.entry(node);
        let places = places.or_insert_with(|| older.remove(&node).unwrap_or_default());
        places.push(place);
    }

    /// Where the gradients of a node that runs are to be recorded.
    fn get(&mut self, node: Node) -> Option<Places> {
        let (number, thread) = node;
        if self.thread != Some(thread) {
            let found = self.recent.get(&node).or_else(|| self.older.get(&node));
            return found.cloned().map(Places::Several);
        }
        let at = number as usize % self.ring;
        // Nodes that collect gradients of leaves all have the largest number.
        if *self.numbers.get(at)? != number.checked_add(1)? {
            return match self.waiting.is_empty() {
                true => None,
                false => self.waiting.get(&number).cloned().map(Places::Several),
            };
        }
        self.ran[at] = true;
        let several = self.several.get(&number).cloned();
        Some(several.map_or_else(|| Places::One(self.place(at)), Places::Several))
    }
}

/// What hears of nodes for one recorder.
///
/// It is never freed, since torch may be about to call it: a few hundred bytes a recorder.
pub struct Observer {
    next: *const Self,
    listens: AtomicBool,
    process: Process,
    announcements: Announcements,
    awaited: Mutex<Awaited>,
    recorder: Py<PyWeakrefReference>,
    shared: Weak<Shared>,
    /// `torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr`.
    take_handle: Py<PyAny>,
}

// SAFETY: the pointer is to another one that is never freed; everything else is shareable.
unsafe impl Sync for Observer {}
// SAFETY: as above.
unsafe impl Send for Observer {}

/// All that there have been, the last one first.
static LAST: AtomicPtr<Observer> = AtomicPtr::new(std::ptr::null_mut());

/// How many listen, and torch's number of the function that tells them.
static LISTENING: Mutex<(usize, u64)> = Mutex::new((0, 0));

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Observer {
    /// One that records what it hears by `recorder`, until [`Self::end`].
    ///
    /// `ring` and `late` are those of [`Awaited`].
    pub fn start(
        recorder: &Bound<'_, Recorder>,
        announcements: Announcements,
        take_handle: Py<PyAny>,
        (ring, late): (usize, usize),
    ) -> PyResult<&'static Self> {
        let awaited = Awaited::new(ring, late);
        let observer = Box::leak(Box::new(Self {
            next: LAST.load(Ordering::Acquire),
            listens: AtomicBool::new(true),
            process: Process::current()?,
            announcements,
            awaited: Mutex::new(awaited),
            recorder: PyWeakrefReference::new(recorder)?.unbind(),
            shared: Arc::downgrade(&recorder.get().shared),
            take_handle,
        }));
        // The GIL is held, so that no other one starts meanwhile.
        LAST.store(observer, Ordering::Release);
        let mut listening = lock(&LISTENING);
        if listening.0 == 0 {
            listening.1 = announcements.observe(on_node);
        }
        listening.0 += 1;
        Ok(observer)
    }

    /// Ends it; torch's nodes are no longer announced once the last one has ended.
    ///
    /// Tells whether gradients that came late were forgotten.
    pub fn end(&self) -> bool {
        if !self.listens.swap(false, Ordering::AcqRel) {
            return false;
        }
        let mut awaited = lock(&self.awaited);
        let nothing = Awaited::new(awaited.ring, awaited.late);
        let forgot = std::mem::replace(&mut *awaited, nothing).forgot;
        drop(awaited);
        let mut listening = lock(&LISTENING);
        listening.0 -= 1;
        if listening.0 == 0 {
            self.announcements.end(listening.1);
        }
        forgot
    }

    /// How nodes are read.
    pub fn announcements(&self) -> &Announcements {
        &self.announcements
    }

    /// Records the gradient that `node` gets for an output under a call and a slot.
    pub fn watch(&self, node: Node, place: Place) {
        lock(&self.awaited).add(node, place);
    }

    /// # Safety
    /// As for [`Announcements::read`].
    unsafe fn hear(&self, announcement: *const u8) {
        // In a forked child the lock may be held by a thread that is not there.
        if !self.process.is_current() || !self.listens.load(Ordering::Acquire) {
            return;
        }
        // SAFETY: forwarded.
        let (node, inputs) = unsafe { self.announcements.read(announcement) };
        let Some(places) = lock(&self.awaited).get(node) else {
            return;
        };
        for (output, places) in places.by_output() {
            let input = inputs.get(output);
            let Some(gradient) = input.and_then(|input| self.announcements.gradient(input)) else {
                continue;
            };
            // SAFETY: torch holds the gradients while it announces the node.
            let recorded = caught(|| unsafe { self.record_without_gil(gradient, places.clone()) });
            if !matches!(recorded, Ok(true)) {
                with_gil(|py| self.record(py, gradient, places, recorded.map(drop)));
            }
        }
    }

    /// Records a gradient if that needs no Python, and no waiting.
    ///
    /// # Safety
    /// The implementation is that of a tensor, which is alive and which the caller holds.
    unsafe fn record_without_gil(
        &self,
        gradient: *mut c_void,
        places: impl Iterator<Item = (u64, u32)>,
    ) -> PyResult<bool> {
        let Some(shared) = self.shared.upgrade() else {
            return Ok(true);
        };
        let Some(_busy) = shared.enter() else {
            return Ok(false);
        };
        let Ok(mut state) = shared.state.try_lock() else {
            return Ok(false);
        };
        let Some(state) = state.as_deref_mut() else {
            return Ok(false);
        };
        // SAFETY: forwarded.
        let recorded = unsafe { state.gradient_at(&shared, gradient, places) };
        recorded.map_err(|error| {
            let mut raised = None;
            with_gil(|py| raised = Some(from_write(py, &error)));
            raised.unwrap_or_else(|| PyRuntimeError::new_err(error.to_string()))
        })
    }

    /// Records a gradient of any kind, or notes that it `failed` to be.
    fn record(
        &self,
        py: Python<'_>,
        gradient: *mut c_void,
        places: impl Iterator<Item = (u64, u32)> + Clone,
        failed_before: PyResult<()>,
    ) {
        let recorder = self.recorder.bind(py).upgrade();
        let Some(Ok(recorder)) = recorder.map(|object| object.cast_into::<Recorder>()) else {
            return;
        };
        let done = failed_before.and_then(|()| {
            caught(|| {
                let gradient = self.object(py, gradient)?;
                Recorder::on_gradient(&recorder, &gradient, places)
            })
        });
        if let Err(error) = done.or_else(|error| failed(&recorder, "gradient", error)) {
            raise_soon(error);
        }
    }

    /// The Python tensor of an implementation.
    fn object<'py>(
        &self,
        py: Python<'py>,
        implementation: *mut c_void,
    ) -> PyResult<Bound<'py, PyAny>> {
        let handle = self.announcements.handle(implementation);
        // SAFETY: what is made is owned, or null with an error; the handle is not null then.
        let capsule = unsafe {
            let capsule = ffi::PyCapsule_New(handle, null(), None);
            Bound::from_owned_ptr_or_err(py, capsule)?
        };
        self.take_handle.bind(py).call1((capsule,))
    }
}

/// Runs `action` with the GIL, which torch has released behind the back of PyO3: that believes to hold
/// it where a call through a callsite runs the pass.
fn with_gil(action: impl FnOnce(Python<'_>)) {
    // SAFETY: any thread may ask for the GIL while the interpreter runs, and gives it back below.
    let held = unsafe { ffi::PyGILState_Ensure() };
    // A panic must not reach torch; what fails has been noted.
    let _ = catch_unwind(AssertUnwindSafe(|| Python::attach(action)));
    // SAFETY: as above.
    unsafe { ffi::PyGILState_Release(held) };
}

/// What torch calls before a node runs.
unsafe extern "C" fn on_node(
    result: *mut *mut c_void,
    announcement: *const u8,
) -> *mut *mut c_void {
    // SAFETY: torch gives a place for a pointer, and an announcement that lives meanwhile; observers
    // are never freed.
    unsafe {
        result.write(std::ptr::null_mut());
        let mut next = LAST.load(Ordering::Acquire).cast_const();
        while let Some(observer) = next.as_ref() {
            observer.hear(announcement);
            next = observer.next;
        }
    }
    result
}

/// Exceptions of the workload's signal handlers that wait until Python can raise them.
static WAITING: Mutex<Vec<PyErr>> = Mutex::new(Vec::new());

/// Has the main thread raise an exception that a signal handler raised within the recorder: there
/// is no Python code around that could.
fn raise_soon(error: PyErr) {
    lock(&WAITING).push(error);
    // SAFETY: the function has the signature that is asked for. Where the list is full, the exception
    // is raised with the next one.
    unsafe { ffi::Py_AddPendingCall(Some(raise), std::ptr::null_mut()) };
}

extern "C" fn raise(_: *mut c_void) -> c_int {
    let Some(error) = lock(&WAITING).pop() else {
        return 0;
    };
    Python::attach(|py| error.restore(py));
    -1
}
