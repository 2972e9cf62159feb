//! Setting up the state of a recorder from objects of torch and of Python.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySet};

use super::access::{Probe, TensorAccess};
use super::announced::Announcements;
use super::autograd::{AutogradAccess, AutogradProbe};
use super::called::Callees;
use super::gradients::{Accessors, Hooked};
use super::hashing::NumberSet;
use super::held::WeakReferences;
use super::known::Known;
use super::modules::Naming;
use super::observer::Observer;
use super::plans::Plans;
use super::random::{GeneratorMemory, Random};
use super::reading::Reader;
use super::sink::{Rows, Sink};
use super::slots::Slots;
use super::state::State;
use super::torch::Torch;
use super::values::Values;
use super::{Recorder, phase};

impl State {
    /// A state that knows nothing yet, and whether tensors and gradients are read natively.
    pub(super) fn connected(
        recorder: &Bound<'_, Recorder>,
        torch: &Bound<'_, PyDict>,
    ) -> PyResult<(Self, bool)> {
        let py = torch.py();
        let Recorder {
            writer, regions, ..
        } = recorder.get();
        let get = |name: &str| -> PyResult<Bound<'_, PyAny>> {
            torch
                .get_item(name)?
                .ok_or_else(|| PyValueError::new_err(format!("{name} is missing")))
        };
        let object = |name: &str| get(name).map(Bound::unbind);
        let types: [Py<PyAny>; 2] = get("tensor_types")?.extract()?;
        let tensor_type = types[0].clone_ref(py);
        let library = get("library")?.extract::<String>()?;
        let access = prove(py, &tensor_type, &library, &get("probes")?)?;
        let autograd = match &access {
            Some(access) => prove_autograd(&library, access, &get("autograd_probes")?)?,
            None => None,
        };
        let proved = access.is_some() && autograd.is_some();
        let phases: NumberSet<u8> = get("phases")?.extract()?;
        let tested = get("tested")?.is_truthy()?;
        let announcements = match (&access, &autograd) {
            (Some(access), Some(autograd)) if tested && phases.contains(&phase::BACKWARD) => {
                prove_announcements(&library, access, autograd, &get("make_node")?)?
            }
            _ => None,
        };
        let python_reader = object("reader")?;
        let reader = python_reader.clone_ref(py);
        let callee_types: [Py<PyAny>; 3] = get("callee_types")?.extract()?;
        let methods = [&callee_types[0], &callee_types[1]].map(|kind| kind.clone_ref(py));
        let state = Self {
            sink: Sink::new(writer.bind(py).clone()),
            reader: Reader::new(access, autograd, types, *regions, reader),
            slots: Slots::new(),
            values: Values::new(
                get("value_types")?.extract()?,
                get("single_types")?.extract()?,
                object("value_text")?,
            ),
            plans: Plans::new(callee_types, object("classify")?),
            torch: Torch::new(
                Accessors::new(py, get("properties")?.extract()?)?,
                get("modes")?.extract()?,
                object("backward")?,
                WeakReferences::new(get("weak_references")?.extract()?),
                tested.then_some(&*library),
            ),
            hooked: Hooked::default(),
            known: Known::default(),
            random: Random::new(
                (object("get_state")?, prove_generator(&get("generators")?)?),
                object("cuda")?,
                get("random_module")?,
                get("modules")?.cast_into::<PyDict>()?.unbind(),
                object("random")?,
            ),
            rows: Rows::default(),
            none: "None".into(),
            scratch: Vec::new(),
            native: get("native")?.is_truthy()?,
            deep: get("deep")?.cast_into::<PySet>()?.unbind(),
            phases,
            python_reader,
            tensor_type,
            naming: Naming {
                methods: get("naming")?.extract()?,
                python: object("named_members")?,
            },
            callees: Callees::new(methods, object("describe")?, get("telling")?.extract()?),
            flatten_arguments: object("flatten_arguments")?,
            flatten_result: object("flatten_result")?,
            plain_text: object("plain_text")?,
        };
        if let Some(announcements) = announcements {
            let (take_handle, remembered) = (object("take_handle")?, get("remembered")?.extract()?);
            let observer = Observer::start(recorder, announcements, take_handle, remembered)?;
            if recorder.get().observer.set(observer).is_err() {
                observer.end();
                return Err(PyValueError::new_err("a recorder is connected once"));
            }
        }
        Ok((state, proved))
    }
}

fn prove(
    py: Python<'_>,
    tensor_type: &Py<PyAny>,
    library: &str,
    probes: &Bound<'_, PyAny>,
) -> PyResult<Option<TensorAccess>> {
    let probes = probes.extract::<Vec<(Bound<'_, PyAny>, usize, u64, usize)>>()?;
    let probes = probes
        .into_iter()
        .map(|(tensor, implementation, keys, storage)| Probe {
            tensor,
            implementation,
            keys,
            storage,
        });
    let probes = probes.collect::<Vec<_>>();
    let is_exact = |p: &Probe<'_>| p.tensor.get_type_ptr().cast() == tensor_type.as_ptr();
    if !probes.iter().all(is_exact) {
        return Ok(None);
    }
    let size = tensor_type.getattr(py, "__basicsize__")?.extract(py)?;
    Ok(TensorAccess::prove(library, size, &probes))
}

fn prove_autograd(
    library: &str,
    access: &TensorAccess,
    probes: &Bound<'_, PyAny>,
) -> PyResult<Option<AutogradAccess>> {
    let probes = probes.extract::<Vec<(Bound<'_, PyAny>, u32, usize, Option<u64>)>>()?;
    let probes = probes
        .into_iter()
        .map(|(tensor, version, gradient, number)| AutogradProbe {
            tensor,
            version,
            gradient,
            number,
        });
    let probes = probes.collect::<Vec<_>>();
    Ok(AutogradAccess::prove(library, access, &probes))
}

/// Proved once for each `make_node`: in a forked child a thread that proves may wait for a lock of torch's
/// whose holder is not there.
fn prove_announcements(
    library: &str,
    access: &TensorAccess,
    autograd: &AutogradAccess,
    make_node: &Bound<'_, PyAny>,
) -> PyResult<Option<Announcements>> {
    static PROVED: Mutex<Option<(Py<PyAny>, Announcements)>> = Mutex::new(None);
    let proved = || PROVED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((by, announcements)) = &*proved()
        && by.is(make_node)
    {
        return Ok(Some(*announcements));
    }
    let found = Announcements::prove(library, access, autograd, make_node)?;
    if let Some(announcements) = found {
        let before = proved().replace((make_node.clone().unbind(), announcements));
        drop(before);
    }
    Ok(found)
}

fn prove_generator(generators: &Bound<'_, PyAny>) -> PyResult<Option<GeneratorMemory>> {
    if generators.is_none() {
        return Ok(None);
    }
    let (address, probe, moves, looks) =
        generators.extract::<(usize, usize, Vec<Bound<'_, PyAny>>, Vec<Bound<'_, PyAny>>)>()?;
    GeneratorMemory::prove(address, probe, &moves, &looks)
}
