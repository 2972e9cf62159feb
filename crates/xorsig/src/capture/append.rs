//! Appends records to the current batch, with every id and number checked.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::intern::Interner;
use super::pending::{LOST, Pending, PendingRows};
use super::records::{CallRow, EndRow, LayoutRow, MarkRow, Records, SpanRow, TensorRow, ValueRow};
use super::writer::WriteError;

/// A longer name or text is refused: a payload has 2^31 bytes at most.
const MAX_TEXT_BYTES: usize = 1 << 28;

/// Begin of a call, as the recorder tells it.
#[derive(Clone, Copy, Debug)]
pub struct Begin {
    /// Tick of the enclosing call, 0 if there is none.
    pub parent: u64,
    /// Site id of the plan.
    pub site: u32,
    /// Step label.
    pub step: i64,
    /// 0 forward, 1 backward, 2 optimizer.
    pub phase: u8,
    /// Number of the thread.
    pub thread: u32,
    /// Call flags.
    pub flags: u32,
    /// Name of the callee.
    pub callee: u32,
}

/// A layout, as the recorder tells it.
#[derive(Clone, Debug)]
pub struct LayoutText<'a> {
    /// Element type.
    pub dtype: &'a str,
    /// Lengths of the dimensions.
    pub shape: Vec<i64>,
    /// Distances in elements, where the tensor has them.
    pub strides: Option<Vec<i64>>,
    /// Device.
    pub device: &'a str,
    /// Storage kind.
    pub kind: &'a str,
    /// Logical size, bytes.
    pub logical_nbytes: u64,
}

/// The batch under construction and what spans batches.
#[derive(Debug)]
pub struct Open {
    /// Names and layouts of the capture.
    pub interner: Interner,
    /// Records since the last cut.
    records: Records,
    /// Those of `records` whose signatures are to come.
    pending: PendingRows,
    /// Name of the note of lost signatures, once a signature is to come; else 0.
    lost: u32,
    /// Index in `records.texts` of each text.
    texts: HashMap<String, u32>,
    /// Bytes of the names and texts in `records`.
    text_bytes: usize,
    /// Tick of the last record.
    tick: u64,
    /// Tick before the first record of `records`.
    tick_before: u64,
    /// When the writer was created.
    created: Instant,
    /// Time of the last record that has one, since the creation.
    clock: Duration,
    /// `clock` as `records` got its first record.
    oldest: Option<Duration>,
}

impl Open {
    /// An empty first batch.
    pub fn new(created: Instant) -> Self {
        Self {
            interner: Interner::default(),
            records: Records::default(),
            pending: PendingRows::default(),
            lost: 0,
            texts: HashMap::new(),
            text_bytes: 0,
            tick: 0,
            tick_before: 0,
            created,
            clock: Duration::ZERO,
            oldest: None,
        }
    }

    /// Number of records since the last cut.
    pub fn record_count(&self) -> usize {
        self.records.len()
    }

    /// Bytes of the names and texts since the last cut.
    pub fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Bytes of the signatures since the last cut.
    pub fn signature_bytes(&self) -> usize {
        self.records.tensors.signatures.len()
    }

    /// How long the first record waits, judged by the last record that has a time: asking the
    /// clock for every tensor would cost as much as recording it.
    pub fn age(&self) -> Duration {
        self.oldest
            .map_or(Duration::ZERO, |oldest| self.clock.saturating_sub(oldest))
    }

    /// Takes the batch; the next one is gathered in the memory of `spare`, which is empty.
    pub fn cut(&mut self, spare: Records) -> Cut {
        self.texts.clear();
        self.text_bytes = 0;
        self.oldest = None;
        let first_tick = std::mem::replace(&mut self.tick_before, self.tick) + 1;
        Cut {
            first_tick,
            records: std::mem::replace(&mut self.records, spare),
            pending: std::mem::take(&mut self.pending),
            lost: self.lost,
        }
    }

    /// The tick of a record that arrives now.
    fn next_tick(&mut self) -> u64 {
        self.oldest.get_or_insert(self.clock);
        self.tick += 1;
        self.tick
    }

    /// Tick and time of a record that arrives now.
    fn next_tick_and_time(&mut self) -> (u64, u64) {
        self.clock = self.created.elapsed();
        (self.next_tick(), self.clock.as_nanos() as u64)
    }
}

/// A batch that is complete but for signatures that are to come.
#[derive(Debug)]
pub struct Cut {
    /// Tick of its first record.
    pub first_tick: u64,
    /// Its records.
    pub records: Records,
    /// Those whose signatures are to come.
    pub pending: PendingRows,
    /// Name of the note of lost signatures.
    pub lost: u32,
}

/// The right to append, while the writer's lock is held.
pub struct Appender<'a> {
    pub(super) open: &'a mut Open,
    pub(super) signature_bytes: usize,
}

impl Appender<'_> {
    /// The id of a name, the same for the whole capture; for texts that a program has few of.
    ///
    /// # Errors
    /// [`WriteError::Invalid`] after 2^32 names, and for a name of more than 2^28 bytes.
    pub fn name(&mut self, text: &str) -> Result<u32, WriteError> {
        check_text(text)?;
        let before = self.open.records.names.len();
        let id = self.open.interner.name(text, &mut self.open.records);
        if self.open.records.names.len() > before {
            self.open.text_bytes += text.len();
        }
        id.ok_or(WriteError::Invalid("there are more than 2^32 names"))
    }

    /// The id of a layout.
    ///
    /// # Errors
    /// [`WriteError::Invalid`] after 2^32 names or layouts.
    pub fn layout(&mut self, layout: LayoutText<'_>) -> Result<u32, WriteError> {
        let row = LayoutRow {
            dtype: self.name(layout.dtype)?,
            shape: layout.shape,
            strides: layout.strides,
            device: self.name(layout.device)?,
            kind: self.name(layout.kind)?,
            logical_nbytes: layout.logical_nbytes,
        };
        let id = self.open.interner.layout(row, &mut self.open.records);
        id.ok_or(WriteError::Invalid("there are more than 2^32 layouts"))
    }

    /// Records the begin of a call; the tick is the call's identity.
    ///
    /// # Errors
    /// [`WriteError::Invalid`].
    pub fn begin(&mut self, call: Begin) -> Result<u64, WriteError> {
        self.check_call(call.parent)?;
        self.check_names([call.callee])?;
        check(
            call.phase <= 2,
            "phase must be 0 (forward), 1 (backward) or 2 (optimizer)",
        )?;
        let (tick, time_ns) = self.open.next_tick_and_time();
        self.open.records.calls.push(CallRow {
            tick,
            time_ns,
            parent: call.parent,
            site: call.site,
            step: call.step,
            phase: call.phase,
            thread: call.thread,
            flags: call.flags,
            callee: call.callee,
        });
        Ok(tick)
    }

    /// Records the end of a call.
    ///
    /// # Errors
    /// [`WriteError::Invalid`].
    pub fn end(
        &mut self,
        call: u64,
        status: u8,
        flags: u32,
        error: u32,
    ) -> Result<u64, WriteError> {
        self.check_call(call)?;
        self.check_names([error])?;
        check(call > 0, "call 0 cannot end: it stands for no call")?;
        check(status <= 1, "status must be 0 (returned) or 1 (raised)")?;
        let (tick, time_ns) = self.open.next_tick_and_time();
        self.open.records.ends.push(EndRow {
            tick,
            time_ns,
            call,
            status,
            flags,
            error,
        });
        Ok(tick)
    }

    /// Records a tensor; `row.tick` is set here.
    ///
    /// # Errors
    /// [`WriteError::Invalid`].
    pub fn tensor(&mut self, row: TensorRow<'_>) -> Result<u64, WriteError> {
        self.check_tensor(&row)?;
        let tick = self.open.next_tick();
        self.open
            .records
            .tensors
            .push(TensorRow { tick, ..row }, self.signature_bytes);
        Ok(tick)
    }

    /// Records a tensor whose signature is to come, or is there already.
    ///
    /// `row` has none. With `unless`, the record is withdrawn if both have the same bytes.
    ///
    /// # Errors
    /// [`WriteError::Invalid`].
    pub fn pending_tensor(
        &mut self,
        row: TensorRow<'_>,
        signature: &Pending,
        unless: Option<&Pending>,
    ) -> Result<u64, WriteError> {
        // Here, so that the name is defined no later than in the batch that may need it.
        self.open.lost = self.name(LOST)?;
        let tick = self.tensor(row)?;
        let Open {
            records, pending, ..
        } = &mut *self.open;
        pending.push(&records.tensors, signature, unless);
        Ok(tick)
    }

    /// Records a value that is not a tensor, by its text.
    ///
    /// # Errors
    /// [`WriteError::Invalid`].
    pub fn value(&mut self, call: u64, role: u8, slot: u32, text: &str) -> Result<u64, WriteError> {
        self.check_call(call)?;
        self.check_names([slot])?;
        check_role(role)?;
        let text = self.text(text)?;
        let tick = self.open.next_tick();
        self.open.records.values.push(ValueRow {
            tick,
            call,
            role,
            slot,
            text,
        });
        Ok(tick)
    }

    /// Records a mark.
    ///
    /// # Errors
    /// [`WriteError::Invalid`].
    pub fn mark(&mut self, kind: u8, step: i64, name: u32, text: &str) -> Result<u64, WriteError> {
        self.check_names([name])?;
        check(
            kind <= 4,
            "kind must be 0 (step), 1 (user), 2 (note), 3 (data) or 4 (place)",
        )?;
        let text = self.text(text)?;
        let (tick, time_ns) = self.open.next_tick_and_time();
        self.open.records.marks.push(MarkRow {
            tick,
            time_ns,
            kind,
            step,
            name,
            text,
        });
        Ok(tick)
    }

    /// Records a span of discovery; it has no tick.
    ///
    /// # Errors
    /// [`WriteError::Invalid`].
    pub fn span(&mut self, row: SpanRow) -> Result<(), WriteError> {
        self.check_names([row.file, row.qualname, row.operator, row.example])?;
        self.open.clock = self.open.created.elapsed();
        self.open.oldest.get_or_insert(self.open.clock);
        self.open.records.spans.push(row);
        Ok(())
    }

    /// Index of a text in the batch. Unlike names, texts may be new in every record: what is kept
    /// of them goes with the batch.
    fn text(&mut self, text: &str) -> Result<u32, WriteError> {
        if let Some(index) = self.open.texts.get(text) {
            return Ok(*index);
        }
        check_text(text)?;
        let Open { texts, records, .. } = &mut *self.open;
        // A batch has at most 2^24 records, and each has one text at most.
        let index = records.texts.len() as u32;
        records.texts.push(text.to_owned());
        texts.insert(text.to_owned(), index);
        self.open.text_bytes += text.len();
        Ok(index)
    }

    fn check_tensor(&self, row: &TensorRow<'_>) -> Result<(), WriteError> {
        self.check_call(row.call)?;
        self.check_names([row.slot, row.note])?;
        check_role(row.role)?;
        let known = row.layout < self.open.interner.layout_count();
        check(
            known,
            "layout_id was not returned by this writer's layout()",
        )?;
        let fits = row
            .signature
            .is_none_or(|bytes| bytes.len() == self.signature_bytes);
        check(
            fits,
            "signature must have 8 bytes per region of this writer",
        )
    }

    fn check_call(&self, call: u64) -> Result<(), WriteError> {
        check(
            call <= self.open.tick,
            "a call's tick was not returned by this writer's begin()",
        )
    }

    fn check_names<const N: usize>(&self, ids: [u32; N]) -> Result<(), WriteError> {
        let known = self.open.interner.name_count();
        let all = ids.iter().all(|id| *id < known);
        check(all, "a name id was not returned by this writer's intern()")
    }
}

fn check_role(role: u8) -> Result<(), WriteError> {
    check(role <= 6, "role must be 0 to 6")
}

fn check_text(text: &str) -> Result<(), WriteError> {
    let fits = text.len() <= MAX_TEXT_BYTES;
    check(fits, "a text holds at most 2^28 bytes")
}

fn check(holds: bool, message: &'static str) -> Result<(), WriteError> {
    if holds {
        Ok(())
    } else {
        Err(WriteError::Invalid(message))
    }
}
