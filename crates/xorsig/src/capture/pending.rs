//! Signatures that arrive after their records, as those that a device computes do.
//!
//! A record is appended at once, so that it keeps its place among the others; its batch is
//! published when every signature in it has arrived. A record may depend on a comparison that
//! only the signatures can decide ("if the call changed it"): it is withdrawn when they are equal.

use std::sync::{Arc, OnceLock};

use super::records::{Records, Tensors};

/// Note of a tensor whose signature never arrived.
pub const LOST: &str = "its fingerprint did not arrive from the device";

/// A signature that arrives once, or is lost. Clones stand for the same signature.
#[derive(Clone, Debug, Default)]
pub struct Pending(Arc<OnceLock<Option<Box<[u8]>>>>);

impl Pending {
    /// The bytes have arrived, or never will (`None`); a second call changes nothing.
    pub fn resolve(&self, bytes: Option<&[u8]>) {
        let _ = self.0.set(bytes.map(Box::from));
    }

    /// Whether it has arrived or is lost.
    pub fn is_resolved(&self) -> bool {
        self.0.get().is_some()
    }

    /// The bytes; `None` before they arrive, and if they are lost.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.0.get()?.as_deref()
    }
}

/// Equal if both stand for one signature; what it turns out to be does not count, or records would
/// depend on when signatures arrive.
impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Pending {}

/// A tensor record whose signature is pending.
#[derive(Debug)]
struct PendingRow {
    /// Index among the tensors of the batch.
    index: usize,
    signature: Pending,
    /// The record is withdrawn if this has the same bytes.
    unless: Option<Pending>,
}

impl PendingRow {
    fn is_resolved(&self) -> bool {
        self.signature.is_resolved() && self.unless.as_ref().is_none_or(Pending::is_resolved)
    }

    fn is_withdrawn(&self) -> bool {
        let same = |unless: &Pending| {
            let bytes = self.signature.bytes();
            bytes.is_some() && bytes == unless.bytes()
        };
        self.unless.as_ref().is_some_and(same)
    }
}

/// The records of a batch whose signatures are pending.
#[derive(Debug, Default)]
pub struct PendingRows {
    rows: Vec<PendingRow>,
    /// Rows before this one are resolved.
    resolved: usize,
}

impl PendingRows {
    /// Adds the record that was pushed to the batch's tensors last.
    pub fn push(&mut self, tensors: &Tensors, signature: &Pending, unless: Option<&Pending>) {
        self.rows.push(PendingRow {
            index: tensors.len() - 1,
            signature: signature.clone(),
            unless: unless.cloned(),
        });
    }

    /// Whether everything has arrived or is lost.
    pub fn are_resolved(&mut self) -> bool {
        let rest = &self.rows[self.resolved..];
        self.resolved += rest.iter().take_while(|row| row.is_resolved()).count();
        self.resolved == self.rows.len()
    }

    /// Puts the signatures, of `width` bytes, into the records; what has not arrived is lost, and
    /// is a tensor that could not be read, with the note `lost`.
    pub fn settle(&self, records: &mut Records, width: usize, lost: u32) {
        let mut withdrawn = Vec::new();
        for row in &self.rows {
            let index = row.index;
            match row.signature.bytes() {
                _ if row.is_withdrawn() => withdrawn.push(index),
                Some(bytes) => records.tensors.set_signature(index, bytes, width),
                None => records.tensors.notes[index] = lost,
            }
        }
        let ticks = withdrawn.iter().map(|&index| records.tensors.ticks[index]);
        records.withdrawn.extend(ticks);
        records.tensors.remove(&withdrawn, width);
    }
}
