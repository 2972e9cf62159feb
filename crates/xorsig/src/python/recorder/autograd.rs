//! What autograd keeps in a tensor: how often it was written to, its gradient, and its node.
//!
//! Recording looks at every known parameter several times in a call. Through Python attributes
//! that costs half a microsecond a parameter; the fields themselves are a few loads away. Where
//! they lie is not promised by torch: each place is found by looking at tensors whose values are
//! known, and [`AutogradAccess::prove`] gives up unless exactly one place agrees with all of them.

use std::ffi::c_void;

use pyo3::prelude::*;

use super::access::{TensorAccess, allocated_bytes, only, symbol};

type Handle = *const *mut c_void;
type Find = unsafe extern "C" fn(Handle) -> *mut c_void;

/// Lengths of allocations are asked for up to this many bytes.
const MOST_BYTES: usize = 512;

/// A plain tensor whose fields are known otherwise.
pub struct AutogradProbe<'py> {
    /// The tensor, of the exact type `torch.Tensor`.
    pub tensor: Bound<'py, PyAny>,
    /// How often it was written to.
    pub version: u32,
    /// Address of the implementation of its gradient; 0 if it has none.
    pub gradient: usize,
    /// Sequence number of its node; `None` for a leaf.
    pub number: Option<u64>,
}

/// The fields of a plain tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// How often it was written to through the dispatcher.
    pub version: u32,
    /// Implementation of its gradient; null if it has none.
    pub gradient: *mut c_void,
    /// Its node; null for a leaf, and for a view whose base has got a node since it was made.
    pub node: *mut c_void,
    /// What autograd keeps of it; null if nothing: no gradient flows back through it.
    pub meta: *mut c_void,
}

/// Proof that the fields can be found, and where.
pub struct AutogradAccess {
    counter: usize,
    version: usize,
    meta: usize,
    gradient: usize,
    /// What stands for no gradient.
    undefined: usize,
    node: usize,
    number: usize,
}

impl AutogradAccess {
    /// Looks for the fields; `None` if torch is not as expected.
    ///
    /// Args:
    ///     library: Path of torch's CPU library, loaded already.
    ///     access: Finds implementations.
    ///     probes: Tensors of at least three versions; some with a gradient, some that could have
    ///         one and do not, some with nodes of different numbers, and some without any of these.
    pub fn prove(
        library: &str,
        access: &TensorAccess,
        probes: &[AutogradProbe<'_>],
    ) -> Option<Self> {
        // SAFETY: torch exports these functions with these types; each takes a reference to a
        // tensor, which is one pointer to an implementation, and returns a pointer or a reference.
        let [meta_of, counter_of, node_of] = unsafe {
            [
                c"_ZN5torch8autograd4impl17get_autograd_metaERKN2at10TensorBaseE",
                c"_ZN5torch8autograd4impl15version_counterERKN2at6TensorE",
                c"_ZN5torch8autograd4impl14grad_fn_unsafeERKN2at6TensorE",
            ]
            .map(|name| symbol(library, name).map(|f| std::mem::transmute::<*mut c_void, Find>(f)))
        };
        let (meta_of, counter_of, node_of) = (meta_of?, counter_of?, node_of?);
        let seen = probes.iter().map(|probe| {
            // SAFETY: the probe is a live tensor of the exact type.
            let implementation = unsafe { access.implementation(probe.tensor.as_ptr()) };
            let handle: Handle = &raw const implementation;
            // SAFETY: as above; none of the functions changes the tensor.
            let (meta, counter, node) =
                unsafe { (meta_of(handle), counter_of(handle), node_of(handle)) };
            Seen {
                probe,
                implementation: implementation as usize,
                meta: meta as usize,
                counter: (counter as usize).wrapping_sub(implementation as usize),
                node: node as usize,
            }
        });
        let seen = seen.collect::<Vec<_>>();
        let size = seen
            .iter()
            .map(|seen| allocated_bytes(seen.implementation))
            .min()?;
        let size = size.min(MOST_BYTES);
        let counter = seen.first()?.counter;
        let kinds =
            |holds: &dyn Fn(&Seen<'_, '_>) -> bool| seen.iter().filter(|s| holds(s)).count();
        let enough = kinds(&|s| s.meta == 0) > 0
            && kinds(&|s| s.probe.gradient != 0) > 1
            && kinds(&|s| s.meta != 0 && s.probe.gradient == 0) > 1
            && kinds(&|s| s.node != 0) > 1
            && kinds(&|s| s.meta != 0 && s.node == 0) > 1
            && seen
                .iter()
                .all(|s| (s.node != 0) == s.probe.number.is_some());
        if !enough || counter + 8 > size || seen.iter().any(|s| s.counter != counter) {
            return None;
        }
        let mut versions = probes.iter().map(|p| p.version).collect::<Vec<_>>();
        versions.sort_unstable();
        versions.dedup();
        if versions.len() < 3 {
            return None;
        }
        // SAFETY: the word lies in the implementation, by the check above.
        let counters = seen
            .iter()
            .map(|s| unsafe { word(s.implementation + counter) });
        let counters = counters.collect::<Vec<_>>();
        if counters.contains(&0) {
            return None;
        }
        let counted = counters
            .iter()
            .map(|&c| allocated_bytes(c))
            .min()?
            .min(MOST_BYTES);
        let version = only(8, counted, 4, |offset| {
            // SAFETY: the word lies in the allocation of the counter, whose size was asked for.
            seen.iter()
                .zip(&counters)
                .all(|(s, &c)| unsafe { half_word(c + offset) } == s.probe.version)
        })?;
        let meta = only(16, size, 8, |offset| {
            // SAFETY: the word lies in the implementation, whose size was asked for.
            seen.iter()
                .all(|s| unsafe { word(s.implementation + offset) } == s.meta)
        })?;
        let with_meta = seen.iter().filter(|s| s.meta != 0).collect::<Vec<_>>();
        let held = with_meta
            .iter()
            .map(|s| allocated_bytes(s.meta))
            .min()?
            .min(MOST_BYTES);
        let undefined_at = |offset: usize| {
            let without = with_meta.iter().filter(|s| s.probe.gradient == 0);
            // SAFETY: the word lies in the allocation of the meta data, by `held`.
            let mut values = without.map(|s| unsafe { word(s.meta + offset) });
            let first = values.next()?;
            values.all(|value| value == first).then_some(first)
        };
        let gradient = only(8, held, 8, |offset| {
            let mut with = with_meta.iter().filter(|s| s.probe.gradient != 0);
            // SAFETY: as above.
            with.all(|s| unsafe { word(s.meta + offset) } == s.probe.gradient)
                && undefined_at(offset).is_some()
        })?;
        let node = only(8, held, 8, |offset| {
            // SAFETY: as above.
            with_meta
                .iter()
                .all(|s| unsafe { word(s.meta + offset) } == s.node)
        })?;
        let undefined = undefined_at(gradient)?;
        let nodes = seen.iter().filter(|s| s.node != 0);
        let nodes = nodes.map(|s| (s.node, s.probe.number));
        let nodes = nodes.collect::<Vec<_>>();
        let smallest = nodes.iter().map(|&(node, _)| allocated_bytes(node)).min()?;
        let number = only(8, smallest.min(MOST_BYTES), 8, |offset| {
            // SAFETY: the word lies in the allocation of the node, whose size was asked for.
            nodes
                .iter()
                .all(|&(node, number)| Some(unsafe { word(node + offset) } as u64) == number)
        })?;
        Some(Self {
            counter,
            version,
            meta,
            gradient,
            undefined,
            node,
            number,
        })
    }

    /// The fields; `None` for a tensor without a version counter.
    ///
    /// # Safety
    /// `implementation` came from [`TensorAccess::implementation`] or is the gradient of another's
    /// fields; its keys say that it is plain, and its tensor is alive.
    pub unsafe fn fields(&self, implementation: *mut c_void) -> Option<Fields> {
        let implementation = implementation as usize;
        // SAFETY: by `prove` every implementation has these words, the first one null or the
        // address of a counter, the second one null or the address of what autograd keeps.
        unsafe {
            let counter = word(implementation + self.counter);
            if counter == 0 {
                return None;
            }
            let version = half_word(counter + self.version);
            let meta = word(implementation + self.meta);
            let (gradient, node) = match meta {
                0 => (0, 0),
                meta => (word(meta + self.gradient), word(meta + self.node)),
            };
            let gradient = if gradient == self.undefined {
                0
            } else {
                gradient
            };
            Some(Fields {
                version,
                gradient: gradient as *mut c_void,
                node: node as *mut c_void,
                meta: meta as *mut c_void,
            })
        }
    }

    /// Implementation that stands for no gradient.
    pub fn undefined(&self) -> usize {
        self.undefined
    }

    /// Sequence number of a node.
    ///
    /// # Safety
    /// `node` is that of the fields of a tensor that is alive and keeps it.
    pub unsafe fn number(&self, node: *mut c_void) -> u64 {
        // SAFETY: by `prove` every node has its number here.
        unsafe { word(node as usize + self.number) as u64 }
    }
}

/// What torch's functions say about a probe.
struct Seen<'a, 'py> {
    probe: &'a AutogradProbe<'py>,
    implementation: usize,
    meta: usize,
    /// Distance of the version counter from the implementation.
    counter: usize,
    node: usize,
}

/// # Safety
/// `address` is that of an aligned, readable word.
pub unsafe fn word(address: usize) -> usize {
    // SAFETY: forwarded.
    unsafe { std::ptr::with_exposed_provenance::<usize>(address).read() }
}

/// # Safety
/// `address` is that of four aligned, readable bytes.
pub unsafe fn half_word(address: usize) -> u32 {
    // SAFETY: forwarded.
    unsafe { std::ptr::with_exposed_provenance::<u32>(address).read() }
}
