//! The parameters and buffers of a module, as `named_parameters(remove_duplicate=False)` and
//! `named_buffers(remove_duplicate=False)` give them.

use std::collections::HashSet;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// Modules inside one another beyond which something holds itself.
const MAX_DEPTH: usize = 256;

/// A tensor that a module holds.
pub struct Held<'py> {
    /// Its name in the module that is walked.
    pub name: String,
    /// Its name in the module that holds it itself.
    pub field: Bound<'py, PyString>,
    /// That module.
    pub holder: Bound<'py, PyAny>,
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
    /// Walks a module and its children in torch's order.
    pub fn of(module: &Bound<'py, PyAny>) -> PyResult<Self> {
        let mut walk = Self::default();
        let training = module.getattr(intern!(module.py(), "training"))?;
        walk.modes.push((String::new(), training.str()?.extract()?));
        walk.visit(module, "", &training, 0)?;
        Ok(walk)
    }

    fn visit(
        &mut self,
        module: &Bound<'py, PyAny>,
        prefix: &str,
        training: &Bound<'py, PyAny>,
        depth: usize,
    ) -> PyResult<()> {
        let py = module.py();
        if depth > MAX_DEPTH {
            return Ok(());
        }
        if self.seen.insert(module.as_ptr() as usize) && depth > 0 {
            let own = module.getattr(intern!(py, "training"))?;
            if !own.is(training) && own.ne(training)? {
                let name = prefix.trim_end_matches('.').to_owned();
                self.modes.push((name, own.str()?.extract()?));
            }
        }
        let parameters = module.getattr(intern!(py, "_parameters"))?;
        hold(module, &parameters, prefix, &mut self.parameters)?;
        let buffers = module.getattr(intern!(py, "_buffers"))?;
        hold(module, &buffers, prefix, &mut self.buffers)?;
        let children = module.getattr(intern!(py, "_modules"))?;
        for (name, child) in items(&children)? {
            if !child.is_none() {
                let name = name.cast::<PyString>()?.to_str()?;
                self.visit(&child, &format!("{prefix}{name}."), training, depth + 1)?;
            }
        }
        Ok(())
    }
}

fn hold<'py>(
    holder: &Bound<'py, PyAny>,
    fields: &Bound<'py, PyAny>,
    prefix: &str,
    into: &mut Vec<Held<'py>>,
) -> PyResult<()> {
    for (field, tensor) in items(fields)? {
        if !tensor.is_none() {
            let field = field.cast_into::<PyString>()?;
            into.push(Held {
                name: format!("{prefix}{}", field.to_str()?),
                field,
                holder: holder.clone(),
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
