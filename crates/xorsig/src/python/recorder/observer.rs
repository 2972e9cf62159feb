//! The gradients that torch announces: where each is to be recorded, and recording it.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// Where gradients of nodes are to be recorded.
///
/// The numbers of a thread's nodes follow one another, so that those of the recording thread are kept by
/// number in a ring: each step writes where the last one stopped, and reads what it has just written.
/// A map of them all would be looked up in memory far away. Other nodes are in a map: those of other
/// threads, and those that have not run when the ring comes round, whose graph may still be there.
#[derive(Default)]
struct Awaited {
    /// Numbers of nodes in the ring; when a node is gone nothing says so.
    ring: usize,
    /// Nodes in the map.
    late: usize,
    /// torch's number of the thread that records, once it has recorded an output.
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
    others: BTreeMap<Node, Vec<Place>>,
    /// Nodes of the ring that have not run.
    pending: usize,
    /// The last node of each thread that is remembered no more.
    forgotten: Numbers<u64, u64>,
    /// Whether one of those has run since.
    forgot: bool,
}

impl Awaited {
    fn new(ring: usize, late: usize) -> Self {
        Self {
            ring,
            late,
            ..Self::default()
        }
    }

    /// Remembers a place; `own` is the number of the thread that records.
    fn add(&mut self, node: Node, place: Place, own: u64) {
        let (number, thread) = node;
        if self.thread.is_none() {
            self.thread = Some(own);
            // Zeros take no memory before something is written there.
            self.numbers = vec![0; self.ring];
            self.outputs = vec![0; self.ring];
            self.calls = vec![0; self.ring];
            self.slots = vec![0; self.ring];
            self.ran = vec![false; self.ring];
        }
        if self.thread != Some(thread) || self.others.contains_key(&node) {
            return self.add_other(node, vec![place]);
        }
        let at = number as usize % self.ring;
        let (output, call, slot) = place;
        if self.numbers[at] == number + 1 {
            let first = self.place(at);
            let places = self.several.entry(number).or_insert_with(|| vec![first]);
            places.push(place);
            return;
        }
        if let Some(replaced) = self.numbers[at].checked_sub(1) {
            if replaced > number {
                // An output that was made before the ring came round.
                return self.add_other(node, vec![place]);
            }
            let several = self.several.remove(&replaced);
            self.pending -= usize::from(!self.ran[at]);
            if self.ran[at] {
                // It may run again where its graph is kept, but so late that is not awaited.
                self.forget((replaced, thread));
            } else {
                let places = several.unwrap_or_else(|| vec![self.place(at)]);
                self.add_other((replaced, thread), places);
            }
        }
        self.ran[at] = false;
        self.pending += 1;
        self.numbers[at] = number + 1;
        self.outputs[at] = output as u32;
        self.calls[at] = call;
        self.slots[at] = slot;
    }

    fn add_other(&mut self, node: Node, places: Vec<Place>) {
        if self.others.len() >= self.late
            && let Some((oldest, _)) = self.others.pop_first()
        {
            self.forget(oldest);
        }
        self.others.entry(node).or_default().extend(places);
    }

    fn forget(&mut self, (number, thread): Node) {
        let last = self.forgotten.entry(thread).or_default();
        *last = number.max(*last);
    }

    fn place(&self, at: usize) -> Place {
        (self.outputs[at] as usize, self.calls[at], self.slots[at])
    }

    /// Where the gradients of a node that runs are to be recorded.
    fn get(&mut self, node: Node) -> Option<Places> {
        let (number, thread) = node;
        // Nodes that collect gradients of leaves all have the largest number.
        let stored = number.checked_add(1)?;
        let at = number as usize % self.ring;
        if self.thread == Some(thread) && self.numbers[at] == stored {
            self.pending -= usize::from(!std::mem::replace(&mut self.ran[at], true));
            let several = self.several.get(&number).cloned();
            return Some(several.map_or_else(|| Places::One(self.place(at)), Places::Several));
        }
        if self.others.is_empty() && self.forgotten.is_empty() {
            return None;
        }
        let found = self.others.get(&node).cloned().map(Places::Several);
        if found.is_none()
            && self
                .forgotten
                .get(&thread)
                .is_some_and(|last| number <= *last)
        {
            self.forgot = true;
        }
        found
    }
}

/// What hears of nodes for one recorder.
///
/// It is never freed, since torch may be about to call it: a few hundred bytes a recorder.
pub struct Observer {
    next: AtomicPtr<Self>,
    listens: AtomicBool,
    /// Whether torch need not tell of nodes for it.
    rests: AtomicBool,
    process: Process,
    announcements: Announcements,
    awaited: Mutex<Awaited>,
    recorder: Py<PyWeakrefReference>,
    shared: Arc<Shared>,
    /// `torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr`.
    take_handle: Py<PyAny>,
}

/// Those that listen, the last one first.
static LAST: AtomicPtr<Observer> = AtomicPtr::new(std::ptr::null_mut());

/// How many do not rest, and torch's number of the function that tells them. Held under the GIL alone, while
/// no Python code runs: a fork finds it free.
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
        let observer = Box::leak(Box::new(Self {
            next: AtomicPtr::default(),
            listens: AtomicBool::new(true),
            rests: AtomicBool::new(true),
            process: Process::current()?,
            announcements,
            awaited: Mutex::new(Awaited::new(ring, late)),
            recorder: PyWeakrefReference::new(recorder)?.unbind(),
            shared: Arc::clone(&recorder.get().shared),
            take_handle,
        }));
        let listening = lock(&LISTENING);
        observer
            .next
            .store(LAST.load(Ordering::Acquire), Ordering::Release);
        LAST.store(observer, Ordering::Release);
        drop(listening);
        observer.wake();
        Ok(observer)
    }

    /// Has torch tell of nodes.
    pub fn wake(&self) {
        if self.listens.load(Ordering::Acquire) && self.process.is_current() {
            let mut listening = lock(&LISTENING);
            if self.rests.swap(false, Ordering::AcqRel) {
                if listening.0 == 0 {
                    listening.1 = self.announcements.observe(on_node);
                }
                listening.0 += 1;
            }
        }
    }

    /// Has torch not tell of nodes until [`Self::wake`], unless gradients are awaited: calls are not
    /// recorded meanwhile.
    pub fn rest(&self) {
        if self.process.is_current() {
            let awaited = lock(&self.awaited);
            if awaited.pending == 0 && awaited.others.is_empty() {
                drop(awaited);
                self.rest_anyway();
            }
        }
    }

    fn rest_anyway(&self) {
        let mut listening = lock(&LISTENING);
        if !self.rests.swap(true, Ordering::AcqRel) {
            listening.0 -= 1;
            if listening.0 == 0 {
                self.announcements.end(listening.1);
            }
        }
    }

    /// Ends it; torch's nodes are no longer announced once the last one has ended.
    ///
    /// Tells whether gradients that came late were forgotten.
    pub fn end(&self) -> bool {
        if !self.listens.swap(false, Ordering::AcqRel) {
            return false;
        }
        let listening = lock(&LISTENING);
        let mut link = &LAST;
        // SAFETY: observers are never freed. A thread that is at one that leaves the list goes on from it.
        while let Some(observer) = unsafe { link.load(Ordering::Acquire).as_ref() } {
            if std::ptr::eq(observer, self) {
                link.store(self.next.load(Ordering::Acquire), Ordering::Release);
                break;
            }
            link = &observer.next;
        }
        drop(listening);
        // In a forked child torch's lock and that of the places may be held by threads that are not
        // there; nodes are told of on, and nobody listens.
        if !self.process.is_current() {
            return false;
        }
        self.rest_anyway();
        let mut awaited = lock(&self.awaited);
        let nothing = Awaited::new(awaited.ring, awaited.late);
        std::mem::replace(&mut *awaited, nothing).forgot
    }

    /// How nodes are read.
    pub fn announcements(&self) -> &Announcements {
        &self.announcements
    }

    /// Records the gradient that `node` gets for an output under a call and a slot.
    pub fn watch(&self, node: Node, place: Place) {
        let own = self.announcements.this_thread();
        lock(&self.awaited).add(node, place, own);
    }

    /// # Safety
    /// As for [`Announcements::read`].
    unsafe fn hear(&self, announcement: *const u8) {
        // In a forked child the lock may be held by a thread that is not there.
        if !self.listens.load(Ordering::Acquire) || !self.process.is_current() {
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
        let shared = &*self.shared;
        // What is busy on another thread, with a gradient of its own, is not to be kept from it: nothing
        // here calls back, so that being busy need not be told.
        let is_busy = shared.busy.load(Ordering::Acquire);
        if is_busy || !shared.is_enabled() || !shared.is_recorded_thread() {
            return Ok(false);
        }
        let Ok(mut state) = shared.state.try_lock() else {
            return Ok(false);
        };
        let Some(connected) = state.as_deref_mut() else {
            return Ok(true);
        };
        // SAFETY: forwarded.
        let recorded = unsafe { connected.gradient_at(shared, gradient, places) };
        drop(state);
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
        self.announcements.with_handle(implementation, |handle| {
            // SAFETY: what is made is owned, or null with an error, as it is for a null handle.
            let capsule = unsafe {
                let capsule = ffi::PyCapsule_New(handle, null(), None);
                Bound::from_owned_ptr_or_err(py, capsule)?
            };
            self.take_handle.bind(py).call1((capsule,))
        })
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
        let mut next = LAST.load(Ordering::Acquire);
        while let Some(observer) = next.as_ref() {
            observer.hear(announcement);
            next = observer.next.load(Ordering::Acquire);
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
