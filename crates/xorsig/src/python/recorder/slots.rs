//! Names of slots, spelled and interned once.

use std::collections::HashMap;

use pyo3::prelude::*;

use super::hashing::Numbers;
use super::sink::Sink;

/// A place in the arguments or the result of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(usize);

#[derive(Debug, Default)]
struct Node {
    /// Spelling for tensors, e.g. `arg[0].mask`.
    tensor: String,
    /// Spelling for values, e.g. `value.arg[0].mask`.
    value: String,
    tensor_id: Option<u32>,
    value_id: Option<u32>,
    gradient_id: Option<u32>,
    items: Vec<Option<Slot>>,
    keys: HashMap<String, Slot>,
}

/// A tree of slots, as deep as what calls have been given so far.
#[derive(Debug)]
pub struct Slots {
    nodes: Vec<Node>,
    /// Slots that were spelled out.
    named: HashMap<String, Slot>,
    /// Spellings of slots of gradients, by id.
    gradients: Numbers<u32, String>,
}

impl Slots {
    /// The slot whose items are the positional arguments and whose keys are the keyword ones.
    const ROOT: Slot = Slot(0);
    /// The result.
    pub const OUT: Slot = Slot(1);
    /// The tensor that a method is bound to.
    pub const SELF: Slot = Slot(2);

    /// Only the roots.
    pub fn new() -> Self {
        let node = |tensor: &str, value: &str| Node {
            tensor: tensor.into(),
            value: value.into(),
            ..Node::default()
        };
        Self {
            nodes: vec![node("", ""), node("out", "out"), node("self", "self")],
            named: HashMap::new(),
            gradients: Numbers::default(),
        }
    }

    /// Positional argument `index`.
    pub fn argument(&mut self, index: usize) -> Slot {
        self.item_with(Self::ROOT, index, |_| {
            (format!("arg[{index}]"), format!("value.arg[{index}]"))
        })
    }

    /// Keyword argument `name`.
    pub fn keyword(&mut self, name: &str) -> Slot {
        self.key_with(Self::ROOT, name, |_| {
            (format!("kwarg.{name}"), format!("value.{name}"))
        })
    }

    /// Item `index` of the sequence at `slot`.
    pub fn item(&mut self, slot: Slot, index: usize) -> Slot {
        self.item_with(slot, index, |node| {
            (
                format!("{}[{index}]", node.tensor),
                format!("{}[{index}]", node.value),
            )
        })
    }

    /// Value of `key` in the dictionary at `slot`.
    pub fn key(&mut self, slot: Slot, key: &str) -> Slot {
        self.key_with(slot, key, |node| {
            (
                format!("{}.{key}", node.tensor),
                format!("{}.{key}", node.value),
            )
        })
    }

    /// A slot of a tensor that is spelled out.
    pub fn named(&mut self, spelling: &str) -> Slot {
        if let Some(known) = self.named.get(spelling) {
            return *known;
        }
        let slot = self.add(Self::ROOT, |_| (spelling.to_owned(), String::new()));
        self.named.insert(spelling.to_owned(), slot);
        slot
    }

    /// Spelling for tensors.
    pub fn spelling(&self, slot: Slot) -> &str {
        &self.nodes[slot.0].tensor
    }

    /// Interned name for tensors.
    pub fn tensor_id(&mut self, py: Python<'_>, slot: Slot, sink: &Sink) -> PyResult<u32> {
        let node = &mut self.nodes[slot.0];
        cached(&mut node.tensor_id, || sink.name(py, &node.tensor))
    }

    /// Interned name for values.
    pub fn value_id(&mut self, py: Python<'_>, slot: Slot, sink: &Sink) -> PyResult<u32> {
        let node = &mut self.nodes[slot.0];
        cached(&mut node.value_id, || sink.name(py, &node.value))
    }

    /// Interned name for the gradient of the tensor.
    pub fn gradient_id(&mut self, py: Python<'_>, slot: Slot, sink: &Sink) -> PyResult<u32> {
        let node = &mut self.nodes[slot.0];
        if let Some(known) = node.gradient_id {
            return Ok(known);
        }
        let spelled = format!("grad.{}", node.tensor);
        let id = sink.name(py, &spelled)?;
        node.gradient_id = Some(id);
        self.gradients.insert(id, spelled);
        Ok(id)
    }

    /// Spelling of a slot of a gradient.
    pub fn gradient(&self, id: u32) -> String {
        self.gradients.get(&id).cloned().unwrap_or_default()
    }

    fn item_with(
        &mut self,
        slot: Slot,
        index: usize,
        spell: impl FnOnce(&Node) -> (String, String),
    ) -> Slot {
        if let Some(Some(known)) = self.nodes[slot.0].items.get(index) {
            return *known;
        }
        let new = self.add(slot, spell);
        let items = &mut self.nodes[slot.0].items;
        if items.len() <= index {
            items.resize(index + 1, None);
        }
        items[index] = Some(new);
        new
    }

    fn key_with(
        &mut self,
        slot: Slot,
        key: &str,
        spell: impl FnOnce(&Node) -> (String, String),
    ) -> Slot {
        if let Some(known) = self.nodes[slot.0].keys.get(key) {
            return *known;
        }
        let new = self.add(slot, spell);
        self.nodes[slot.0].keys.insert(key.to_owned(), new);
        new
    }

    fn add(&mut self, slot: Slot, spell: impl FnOnce(&Node) -> (String, String)) -> Slot {
        let (tensor, value) = spell(&self.nodes[slot.0]);
        self.nodes.push(Node {
            tensor,
            value,
            ..Node::default()
        });
        Slot(self.nodes.len() - 1)
    }
}

fn cached(id: &mut Option<u32>, name: impl FnOnce() -> PyResult<u32>) -> PyResult<u32> {
    if let Some(known) = *id {
        return Ok(known);
    }
    let new = name()?;
    *id = Some(new);
    Ok(new)
}
