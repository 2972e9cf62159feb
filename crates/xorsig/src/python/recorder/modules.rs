//! The parameters and buffers of a module, as `named_parameters(remove_duplicate=False)` and
//! `named_buffers(remove_duplicate=False)` give them.

use std::collections::HashSet;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::opening::Identities;

/// torch's methods that name what a module holds.
pub struct Naming {
    /// Names of the methods, and torch's own.
    pub methods: Vec<(Py<PyString>, Py<PyAny>)>,
    /// Python's `named_members(module)`, for classes that have others.
    pub python: Py<PyAny>,
}

impl Naming {
    /// Whether the class of a module lets torch enumerate what it holds.
    pub fn is_torchs(&self, module: &Bound<'_, PyAny>) -> PyResult<bool> {
        let kind = module.get_type();
        for (name, method) in &self.methods {
            // A proxy's class does not have them.
            if !kind.getattr_opt(name)?.is_some_and(|own| own.is(method)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A tensor that a module holds.
pub struct Held<'py> {
    /// Its name in the module that is walked.
    pub name: String,
    /// Its name in the module that holds it itself.
    pub field: Bound<'py, PyString>,
    /// That module; `None` where none is known.
    pub holder: Option<Bound<'py, PyAny>>,
    /// The tensor.
    pub tensor: Bound<'py, PyAny>,
}

/// Everything that a module holds.
#[derive(Default)]
pub struct Walk<'py> {
    pub parameters: Vec<Held<'py>>,
    pub buffers: Vec<Held<'py>>,
    /// Text of the module's training flag, and of those of its children that differ from it.
    pub modes: Vec<(String, String)>,
    seen: HashSet<usize>,
}

impl<'py> Walk<'py> {
    /// Whether every tensor satisfies `accept`.
    pub fn all(&self, accept: impl Fn(&Bound<'py, PyAny>) -> bool) -> bool {
        let mut held = self.parameters.iter().chain(&self.buffers);
        held.all(|held| accept(&held.tensor))
    }

    /// Walks a module and its children in torch's order, or as its class has it.
    ///
    /// Args:
    ///     unless: Identities of tensors to leave out, which cost no name.
    pub fn of(module: &Bound<'py, PyAny>, naming: &Naming, unless: &Identities) -> PyResult<Self> {
        let mut walk = Self::default();
        if !naming.is_torchs(module)? {
            walk.ask(module, naming, unless)?;
            return Ok(walk);
        }
        let training = module.getattr(intern!(module.py(), "training"))?;
        walk.modes.push((String::new(), training.str()?.extract()?));
        walk.visit(module, "", &training, &mut Vec::new(), unless)?;
        Ok(walk)
    }

    fn ask(
        &mut self,
        module: &Bound<'py, PyAny>,
        naming: &Naming,
        unless: &Identities,
    ) -> PyResult<()> {
        let py = module.py();
        type Asked<'py> = (
            Vec<(String, Option<Bound<'py, PyAny>>, Bound<'py, PyAny>)>,
            Vec<(String, Bound<'py, PyAny>)>,
            Vec<(String, String)>,
        );
        let asked = naming.python.bind(py).call1((module,))?;
        let (parameters, buffers, modes) = asked.extract::<Asked<'py>>()?;
        let held = |name: String, holder, tensor| Held {
            field: PyString::new(py, name.rsplit('.').next().unwrap_or(&name)),
            name,
            holder,
            tensor,
        };
        let parameters = parameters.into_iter();
        let parameters = parameters.map(|(name, holder, tensor)| held(name, holder, tensor));
        self.parameters = parameters.collect();
        let buffers = buffers.into_iter();
        self.buffers = buffers
            .map(|(name, tensor)| held(name, None, tensor))
            .collect();
        self.modes = modes;
        for held in [&mut self.parameters, &mut self.buffers] {
            held.retain(|held| !unless.contains(&(held.tensor.as_ptr() as usize)));
        }
        Ok(())
    }

    fn visit(
        &mut self,
        module: &Bound<'py, PyAny>,
        prefix: &str,
        training: &Bound<'py, PyAny>,
        around: &mut Vec<usize>,
        unless: &Identities,
    ) -> PyResult<()> {
        let py = module.py();
        let identity = module.as_ptr() as usize;
        // A module inside itself has been named.
        if around.contains(&identity) {
            return Ok(());
        }
        if self.seen.insert(identity) && !around.is_empty() {
            let own = module.getattr(intern!(py, "training"))?;
            if !own.is(training) && own.ne(training)? {
                let name = prefix.trim_end_matches('.').to_owned();
                self.modes.push((name, own.str()?.extract()?));
            }
        }
        let parameters = module.getattr(intern!(py, "_parameters"))?;
        hold(module, &parameters, prefix, unless, &mut self.parameters)?;
        let buffers = module.getattr(intern!(py, "_buffers"))?;
        hold(module, &buffers, prefix, unless, &mut self.buffers)?;
        around.push(identity);
        let children = module.getattr(intern!(py, "_modules"))?;
        for (name, child) in items(&children)? {
            if !child.is_none() {
                let name = name.cast::<PyString>()?.to_str()?;
                self.visit(
                    &child,
                    &format!("{prefix}{name}."),
                    training,
                    around,
                    unless,
                )?;
            }
        }
        around.pop();
        Ok(())
    }
}

fn hold<'py>(
    holder: &Bound<'py, PyAny>,
    fields: &Bound<'py, PyAny>,
    prefix: &str,
    unless: &Identities,
    into: &mut Vec<Held<'py>>,
) -> PyResult<()> {
    for (field, tensor) in items(fields)? {
        if !tensor.is_none() && !unless.contains(&(tensor.as_ptr() as usize)) {
            let field = field.cast_into::<PyString>()?;
            into.push(Held {
                name: format!("{prefix}{}", field.to_str()?),
                field,
                holder: Some(holder.clone()),
                tensor,
            });
        }
    }
    Ok(())
}

type Pair<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Items of a dictionary, or of anything with `items`.
fn items<'py>(fields: &Bound<'py, PyAny>) -> PyResult<Vec<Pair<'py>>> {
    match fields.cast_exact::<PyDict>() {
        Ok(fields) => Ok(fields.iter().collect()),
        Err(_) => fields
            .call_method0(intern!(fields.py(), "items"))?
            .try_iter()?
            .map(|item| item?.extract())
            .collect(),
    }
}
