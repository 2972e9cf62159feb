//! Reads a rank's batches in order and proves that none is missing, foreign or repeated.

use std::path::{Path, PathBuf};

use super::ahead::Ahead;
use super::batch_file_name;
use super::continuity::Continuity;
use super::error::{CaptureError, Corrupt};
use super::load::{Loaded, list};
use super::records::Records;

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
    expected: Expected,
    sequences: Vec<u64>,
    ahead: Option<Ahead>,
    continuity: Continuity,
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
        Ok(Self {
            directory: directory.to_owned(),
            expected,
            sequences: list(directory)?,
            ahead: None,
            continuity: Continuity::new(capture_id, rank),
            summary: Summary::default(),
        })
    }

    /// Lets `threads` threads decode ahead of the caller; for a reader that has read nothing yet.
    /// With 1, or with a single batch, the caller decodes itself.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        let threads = threads.min(self.sequences.len());
        if threads > 1 && self.summary.batches == 0 {
            self.ahead = Ahead::start(
                &self.directory,
                self.sequences.clone(),
                threads,
                threads + 1,
            );
        }
        self
    }

    /// Lets one thread decode ahead of a caller that has work of its own; for a reader that has
    /// read nothing yet. With a single batch, the caller decodes itself.
    #[must_use]
    pub fn decoding_ahead(mut self) -> Self {
        if self.sequences.len() > 1 && self.summary.batches == 0 {
            self.ahead = Ahead::start(&self.directory, self.sequences.clone(), 1, 1);
        }
        self
    }

    /// Whether threads decode ahead of the caller.
    pub fn is_threaded(&self) -> bool {
        self.ahead.is_some()
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
        let mut loaded = Loaded::default();
        let more = self.advance(&mut loaded)?;
        Ok(more.then_some(loaded.records))
    }

    /// Reads everything that is left and forgets it.
    ///
    /// # Errors
    /// As [`Self::next_batch`].
    pub fn finish(mut self) -> Result<Summary, CaptureError> {
        let mut loaded = Loaded::default();
        while self.advance(&mut loaded)? {}
        Ok(self.summary)
    }

    /// Puts the next batch into `loaded`, in place of an earlier one; `false` after the last one.
    ///
    /// # Errors
    /// As [`Self::next_batch`].
    pub(crate) fn advance(&mut self, loaded: &mut Loaded) -> Result<bool, CaptureError> {
        let sequence = self.summary.batches;
        let Some(&found) = self.sequences.get(sequence as usize) else {
            self.check_end(sequence)?;
            return Ok(false);
        };
        let end = self.expected.batches;
        if end.is_some_and(|end| sequence >= end) {
            let reason = format!("the receipt ends before batch {found}");
            return Err(self.corrupt(Some(found), reason).into());
        }
        if found != sequence {
            let reason = match found - sequence {
                1 => "the batch is missing".into(),
                count => format!(
                    "the batch is missing, and those up to {}",
                    sequence + count - 1
                ),
            };
            return Err(self.corrupt(Some(sequence), reason).into());
        }
        match &mut self.ahead {
            Some(ahead) => *loaded = ahead.next(std::mem::take(loaded))?,
            None => loaded.load(&self.directory, sequence)?,
        }
        let Some(header) = &loaded.header else {
            return Err(CaptureError::Invalid("no batch was loaded".into()));
        };
        self.continuity
            .accept(header, &loaded.records)
            .map_err(|reason| self.corrupt(Some(sequence), reason))?;
        self.summary = Summary {
            batches: sequence + 1,
            records: self.summary.records + header.records,
            bytes: self.summary.bytes + loaded.file.len() as u64,
            last_tick: self.continuity.last_tick(),
            created_unix_ns: header.created_unix_ns,
            regions: header.regions,
        };
        Ok(true)
    }

    /// Whether what was read is all that the receipt promises.
    fn check_end(&self, batches: u64) -> Result<(), Corrupt> {
        let wrong = |expected: Option<u64>, found| expected.filter(|expected| *expected != found);
        if let Some(expected) = wrong(self.expected.batches, batches) {
            let reason = format!("the receipt has {expected} batches, {batches} are there");
            return Err(self.corrupt(Some(batches), reason));
        }
        let records = self.summary.records;
        if let Some(expected) = wrong(self.expected.records, records) {
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
