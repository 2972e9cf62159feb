//! Reads a rank's batches in order and proves that none is missing, foreign or repeated.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::decode::decode;
use super::error::{CaptureError, Corrupt};
use super::header::Header;
use super::records::Records;
use super::{batch_file_name, batch_sequence};

/// What a receipt says about a rank's batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Number of batches, if known.
    pub batches: Option<u64>,
    /// Number of records, if known.
    pub records: Option<u64>,
}

/// What a rank's batches hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Batches.
    pub batches: u64,
    /// Records.
    pub records: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Last tick, 0 if there is none.
    pub last_tick: u64,
    /// Unix time of the writer's creation, ns; 0 if there is no batch.
    pub created_unix_ns: u64,
    /// Regions per fingerprint; 0 if there is no batch.
    pub regions: u32,
}

/// Reads the batches of one rank's directory, one after another.
#[derive(Debug)]
pub struct CaptureReader {
    directory: PathBuf,
    capture_id: [u8; 16],
    rank: u32,
    expected: Expected,
    sequences: Vec<u64>,
    names: u64,
    layouts: u64,
    /// Calls that began and did not end yet.
    open_calls: HashSet<u64>,
    summary: Summary,
}

impl CaptureReader {
    /// Lists a rank's directory.
    ///
    /// # Errors
    /// [`CaptureError::Io`] if it cannot be listed.
    pub fn open(
        directory: &Path,
        capture_id: [u8; 16],
        rank: u32,
        expected: Expected,
    ) -> Result<Self, CaptureError> {
        let mut sequences = Vec::new();
        for entry in fs::read_dir(directory).map_err(CaptureError::io("list", directory))? {
            let entry = entry.map_err(CaptureError::io("list", directory))?;
            sequences.extend(entry.file_name().to_str().and_then(batch_sequence));
        }
        sequences.sort_unstable();
        Ok(Self {
            directory: directory.to_owned(),
            capture_id,
            rank,
            expected,
            sequences,
            // Name 0 is the empty name; no batch defines it.
            names: 1,
            layouts: 0,
            open_calls: HashSet::new(),
            summary: Summary::default(),
        })
    }

    /// What was read so far.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// The next batch, or `None` after the last one, when all expected ones were there.
    ///
    /// # Errors
    /// [`CaptureError::Corrupt`] names the first batch that is damaged, missing or not of this
    /// capture; [`CaptureError::Io`] if a file cannot be read.
    pub fn next_batch(&mut self) -> Result<Option<Records>, CaptureError> {
        let sequence = self.summary.batches;
        let Some(&found) = self.sequences.get(sequence as usize) else {
            self.check_end(sequence)?;
            return Ok(None);
        };
        if self
            .expected
            .batches
            .is_some_and(|expected| sequence >= expected)
        {
            let reason = format!("the receipt ends before batch {found}");
            return Err(self.corrupt(Some(found), reason).into());
        }
        if found != sequence {
            return Err(self
                .corrupt(Some(sequence), "the batch is missing".into())
                .into());
        }
        let path = self.directory.join(batch_file_name(sequence));
        let file = fs::read(&path).map_err(CaptureError::io("read", &path))?;
        let (header, records) =
            decode(&file).map_err(|reason| self.corrupt(Some(sequence), reason))?;
        self.accept(&header, &records)
            .map_err(|reason| self.corrupt(Some(sequence), reason))?;
        self.summary.batches += 1;
        self.summary.records += header.records;
        self.summary.bytes += file.len() as u64;
        Ok(Some(records))
    }

    /// Reads everything that is left and forgets it.
    ///
    /// # Errors
    /// As [`Self::next_batch`].
    pub fn finish(mut self) -> Result<Summary, CaptureError> {
        while self.next_batch()?.is_some() {}
        Ok(self.summary)
    }

    /// Whether a batch continues what was read before it.
    fn accept(&mut self, header: &Header, records: &Records) -> Result<(), String> {
        let summary = &mut self.summary;
        if header.capture_id != self.capture_id {
            let id = u128::from_be_bytes(header.capture_id);
            return Err(format!("the batch belongs to capture {id:032x}"));
        }
        if header.rank != self.rank {
            return Err(format!("the batch belongs to rank {}", header.rank));
        }
        if header.sequence != summary.batches {
            return Err(format!(
                "the batch is number {} under another name",
                header.sequence
            ));
        }
        if summary.batches == 0 {
            summary.created_unix_ns = header.created_unix_ns;
            summary.regions = header.regions;
        }
        if (header.created_unix_ns, header.regions) != (summary.created_unix_ns, summary.regions) {
            return Err("the batch belongs to another writer".into());
        }
        if header.first_tick > 0 {
            if header.first_tick != summary.last_tick + 1 {
                return Err(format!("ticks begin at {}", header.first_tick));
            }
            summary.last_tick = header.last_tick;
        }
        define(
            &mut self.names,
            records.first_name,
            records.names.len(),
            "names",
        )?;
        define(
            &mut self.layouts,
            records.first_layout,
            records.layouts.len(),
            "layouts",
        )?;
        check_references(records, self.names, self.layouts)?;
        self.open_calls
            .extend(records.calls.iter().map(|call| call.tick));
        match records
            .ends
            .iter()
            .find(|end| !self.open_calls.remove(&end.call))
        {
            Some(end) => Err(format!("call {} ends but is not open", end.call)),
            None => Ok(()),
        }
    }

    fn check_end(&self, batches: u64) -> Result<(), Corrupt> {
        if let Some(expected) = self
            .expected
            .batches
            .filter(|expected| *expected != batches)
        {
            let reason = format!("the receipt has {expected} batches, {batches} are there");
            return Err(self.corrupt(Some(batches), reason));
        }
        let records = self.summary.records;
        if let Some(expected) = self
            .expected
            .records
            .filter(|expected| *expected != records)
        {
            let reason = format!("the receipt has {expected} records, the batches {records}");
            return Err(self.corrupt(None, reason));
        }
        Ok(())
    }

    fn corrupt(&self, sequence: Option<u64>, reason: String) -> Corrupt {
        let path = match sequence {
            Some(sequence) => self.directory.join(batch_file_name(sequence)),
            None => self.directory.clone(),
        };
        Corrupt {
            path,
            sequence,
            reason,
        }
    }
}

/// Counts `count` new ids, which must follow the known ones.
fn define(known: &mut u64, first: u32, count: usize, what: &str) -> Result<(), String> {
    if count > 0 && u64::from(first) != *known {
        return Err(format!("{what} begin at id {first} instead of {known}"));
    }
    *known += count as u64;
    Ok(())
}

/// Whether every id is defined and every call began before what refers to it.
fn check_references(records: &Records, names: u64, layouts: u64) -> Result<(), String> {
    let tensors = &records.tensors;
    let name_ids = (records
        .layouts
        .iter()
        .flat_map(|r| [r.dtype, r.device, r.kind]))
    .chain(records.calls.iter().map(|r| r.callee))
    .chain(records.ends.iter().map(|r| r.error))
    .chain(tensors.slots.iter().copied())
    .chain(tensors.notes.iter().copied())
    .chain(records.values.iter().map(|r| r.slot))
    .chain(records.marks.iter().map(|r| r.name))
    .chain(
        records
            .spans
            .iter()
            .flat_map(|r| [r.file, r.qualname, r.operator, r.example]),
    );
    if let Some(id) = name_ids.max().filter(|id| u64::from(*id) >= names) {
        return Err(format!("name {id} is not defined"));
    }
    if let Some(id) = tensors
        .layouts
        .iter()
        .max()
        .filter(|id| u64::from(**id) >= layouts)
    {
        return Err(format!("layout {id} is not defined"));
    }
    let texts = (records.values.iter().map(|r| r.text)).chain(records.marks.iter().map(|r| r.text));
    if let Some(index) = texts.max().filter(|i| *i as usize >= records.texts.len()) {
        return Err(format!("the batch has no text {index}"));
    }
    let mut earlier = (records.calls.iter().map(|r| (r.parent, r.tick)))
        .chain(records.ends.iter().map(|r| (r.call, r.tick)))
        .chain(
            tensors
                .calls
                .iter()
                .copied()
                .zip(tensors.ticks.iter().copied()),
        )
        .chain(records.values.iter().map(|r| (r.call, r.tick)));
    match earlier.find(|(call, tick)| call >= tick) {
        Some((call, tick)) => Err(format!("record {tick} refers to the later call {call}")),
        None => Ok(()),
    }
}
