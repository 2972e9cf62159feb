//! Appends records to the current batch, with every id and number checked.

use std::time::Instant;

use super::intern::Interner;
use super::records::{CallRow, EndRow, LayoutRow, MarkRow, Records, SpanRow, TensorRow, ValueRow};
use super::writer::WriteError;

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
#[derive(Debug, Default)]
pub struct Open {
    /// Names and layouts of the capture.
    pub interner: Interner,
    /// Records since the last cut.
    pub records: Records,
    /// Bytes of the names in `records`.
    pub name_bytes: usize,
    /// Tick of the last record.
    pub tick: u64,
    /// Tick before the first record of `records`.
    pub tick_before: u64,
    /// When `records` got its first record.
    pub oldest: Option<Instant>,
}

/// The right to append, while the writer's lock is held.
pub struct Appender<'a> {
    pub(super) open: &'a mut Open,
    pub(super) created: Instant,
    pub(super) signature_bytes: usize,
}

impl Appender<'_> {
    /// The id of a name.
    ///
    /// # Errors
    /// [`WriteError::Invalid`] after 2^32 names.
    pub fn name(&mut self, text: &str) -> Result<u32, WriteError> {
        let before = self.open.records.names.len();
        let id = self.open.interner.name(text, &mut self.open.records);
        if self.open.records.names.len() > before {
            self.open.name_bytes += text.len();
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
        let (tick, now) = self.tick();
        self.open.records.calls.push(CallRow {
            tick,
            time_ns: self.since_creation(now),
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
        let (tick, now) = self.tick();
        let time_ns = self.since_creation(now);
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
        )?;
        let (tick, _) = self.tick();
        self.open
            .records
            .tensors
            .push(TensorRow { tick, ..row }, self.signature_bytes);
        Ok(tick)
    }

    /// Records a value; `row.tick` is set here.
    ///
    /// # Errors
    /// [`WriteError::Invalid`].
    pub fn value(&mut self, row: ValueRow) -> Result<u64, WriteError> {
        self.check_call(row.call)?;
        self.check_names([row.slot, row.value])?;
        check_role(row.role)?;
        let (tick, _) = self.tick();
        self.open.records.values.push(ValueRow { tick, ..row });
        Ok(tick)
    }

    /// Records a mark.
    ///
    /// # Errors
    /// [`WriteError::Invalid`].
    pub fn mark(&mut self, kind: u8, step: i64, name: u32, value: u32) -> Result<u64, WriteError> {
        self.check_names([name, value])?;
        check(
            kind <= 3,
            "kind must be 0 (step), 1 (user), 2 (note) or 3 (data)",
        )?;
        let (tick, now) = self.tick();
        let time_ns = self.since_creation(now);
        self.open.records.marks.push(MarkRow {
            tick,
            time_ns,
            kind,
            step,
            name,
            value,
        });
        Ok(tick)
    }

    /// Records a span of discovery; it has no tick.
    ///
    /// # Errors
    /// [`WriteError::Invalid`].
    pub fn span(&mut self, row: SpanRow) -> Result<(), WriteError> {
        self.check_names([row.file, row.qualname, row.operator, row.example])?;
        self.open.oldest.get_or_insert_with(Instant::now);
        self.open.records.spans.push(row);
        Ok(())
    }

    /// The next tick and the time of its record.
    fn tick(&mut self) -> (u64, Instant) {
        let now = Instant::now();
        self.open.oldest.get_or_insert(now);
        self.open.tick += 1;
        (self.open.tick, now)
    }

    fn since_creation(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.created).as_nanos() as u64
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

fn check(holds: bool, message: &'static str) -> Result<(), WriteError> {
    if holds {
        Ok(())
    } else {
        Err(WriteError::Invalid(message))
    }
}
