//! The records of one batch, as the recorder appends them and as the reader returns them.
//!
//! Columns instead of rows: appending is a few pushes, and encoding takes the vectors as they
//! are. Ticks and times are absolute here; on disk they are differences ([`super::encode`]).

/// Definition of a layout: what tensors of one kind share. Names are ids of the name table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LayoutRow {
    /// Name of the element type.
    pub dtype: u32,
    /// Lengths of the dimensions.
    pub shape: Vec<i64>,
    /// Distances in elements, where the tensor has them.
    pub strides: Option<Vec<i64>>,
    /// Name of the device.
    pub device: u32,
    /// Name of the storage kind (`strided`, `sparse_coo`, `meta`, …).
    pub kind: u32,
    /// Logical size, bytes.
    pub logical_nbytes: u64,
}

/// Begin of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRow {
    /// Tick of the record, which is also the call's identity.
    pub tick: u64,
    /// Nanoseconds since the writer's creation.
    pub time_ns: u64,
    /// Tick of the enclosing call, 0 if there is none.
    pub parent: u64,
    /// Site id of the plan.
    pub site: u32,
    /// Step label.
    pub step: i64,
    /// 0 forward, 1 backward, 2 optimizer.
    pub phase: u8,
    /// Number of the thread, as the recorder counts them.
    pub thread: u32,
    /// Call flags.
    pub flags: u32,
    /// Name of the callee.
    pub callee: u32,
}

/// End of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndRow {
    /// Tick of the record.
    pub tick: u64,
    /// Nanoseconds since the writer's creation.
    pub time_ns: u64,
    /// Tick of the call that ended.
    pub call: u64,
    /// 0 returned, 1 raised.
    pub status: u8,
    /// Flags to add to the call's.
    pub flags: u32,
    /// Name of the error's type, or 0.
    pub error: u32,
}

/// A tensor at the boundary of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorRow<'a> {
    /// Tick of the record.
    pub tick: u64,
    /// Tick of the call.
    pub call: u64,
    /// Role number.
    pub role: u8,
    /// Name of the slot.
    pub slot: u32,
    /// Id of the layout.
    pub layout: u32,
    /// XOR values, then mix values, little-endian; `None` if the tensor could not be read.
    pub signature: Option<&'a [u8]>,
    /// Name of the reason when there is no signature, else 0.
    pub note: u32,
}

/// A value that is not a tensor, by its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueRow {
    /// Tick of the record.
    pub tick: u64,
    /// Tick of the call.
    pub call: u64,
    /// Role number.
    pub role: u8,
    /// Name of the slot.
    pub slot: u32,
    /// Index of the value's text in the batch.
    pub text: u32,
}

/// Something that belongs to the run and not to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkRow {
    /// Tick of the record.
    pub tick: u64,
    /// Nanoseconds since the writer's creation.
    pub time_ns: u64,
    /// 0 step completed, 1 user mark, 2 session note, 3 data, 4 place.
    pub kind: u8,
    /// Step label.
    pub step: i64,
    /// Name.
    pub name: u32,
    /// Index of the value's text in the batch.
    pub text: u32,
}

/// A source expression seen by discovery; counts of equal spans add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanRow {
    /// Name of the file.
    pub file: u32,
    /// Name of the function.
    pub qualname: u32,
    /// First line, last line, first and last column; -1 where unknown.
    pub position: [i32; 4],
    /// Name of the operator.
    pub operator: u32,
    /// How often it was seen.
    pub count: u64,
    /// Span flags.
    pub flags: u32,
    /// Name of an example of the tensors, or 0.
    pub example: u32,
}

/// The tensor records of a batch, by column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tensors {
    /// Ticks.
    pub ticks: Vec<u64>,
    /// Calls.
    pub calls: Vec<u64>,
    /// Roles.
    pub roles: Vec<u8>,
    /// Slots.
    pub slots: Vec<u32>,
    /// Layouts.
    pub layouts: Vec<u32>,
    /// Notes.
    pub notes: Vec<u32>,
    /// Whether a row has a signature.
    pub present: Vec<bool>,
    /// Signatures, one width per row; zero bytes where absent.
    pub signatures: Vec<u8>,
}

impl Tensors {
    /// Appends a record; a signature has `width` bytes.
    pub fn push(&mut self, row: TensorRow<'_>, width: usize) {
        self.ticks.push(row.tick);
        self.calls.push(row.call);
        self.roles.push(row.role);
        self.slots.push(row.slot);
        self.layouts.push(row.layout);
        self.notes.push(row.note);
        self.present.push(row.signature.is_some());
        match row.signature {
            Some(signature) => self.signatures.extend_from_slice(signature),
            None => self.signatures.resize(self.signatures.len() + width, 0),
        }
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.ticks.clear();
        self.calls.clear();
        self.roles.clear();
        self.slots.clear();
        self.layouts.clear();
        self.notes.clear();
        self.present.clear();
        self.signatures.clear();
    }

    /// Gives a record without a signature its signature, of `width` bytes.
    pub fn set_signature(&mut self, i: usize, signature: &[u8], width: usize) {
        self.present[i] = true;
        self.signatures[i * width..][..width].copy_from_slice(signature);
    }

    /// Removes the records of ascending indices; a signature has `width` bytes.
    pub fn remove(&mut self, indices: &[usize], width: usize) {
        let Some(&first) = indices.first() else {
            return;
        };
        let mut removed = indices.iter().copied().peekable();
        let mut to = first;
        for from in first..self.len() {
            if removed.next_if_eq(&from).is_some() {
                continue;
            }
            self.ticks[to] = self.ticks[from];
            self.calls[to] = self.calls[from];
            self.roles[to] = self.roles[from];
            self.slots[to] = self.slots[from];
            self.layouts[to] = self.layouts[from];
            self.notes[to] = self.notes[from];
            self.present[to] = self.present[from];
            let signature = from * width..(from + 1) * width;
            self.signatures.copy_within(signature, to * width);
            to += 1;
        }
        self.ticks.truncate(to);
        self.calls.truncate(to);
        self.roles.truncate(to);
        self.slots.truncate(to);
        self.layouts.truncate(to);
        self.notes.truncate(to);
        self.present.truncate(to);
        self.signatures.truncate(to * width);
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.ticks.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.ticks.is_empty()
    }

    /// Record `i`; a signature has `width` bytes.
    pub fn row(&self, i: usize, width: usize) -> TensorRow<'_> {
        TensorRow {
            tick: self.ticks[i],
            call: self.calls[i],
            role: self.roles[i],
            slot: self.slots[i],
            layout: self.layouts[i],
            signature: self.present[i].then(|| &self.signatures[i * width..][..width]),
            note: self.notes[i],
        }
    }
}

/// Everything one batch holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Id of the first name of `names`.
    pub first_name: u32,
    /// Names first used in this batch; ids follow one another.
    pub names: Vec<String>,
    /// Id of the first layout of `layouts`.
    pub first_layout: u32,
    /// Layouts first used in this batch; ids follow one another.
    pub layouts: Vec<LayoutRow>,
    /// Texts of the batch's values and marks, which no other batch refers to.
    pub texts: Vec<String>,
    /// Begins of calls.
    pub calls: Vec<CallRow>,
    /// Ends of calls.
    pub ends: Vec<EndRow>,
    /// Tensors.
    pub tensors: Tensors,
    /// Values.
    pub values: Vec<ValueRow>,
    /// Marks.
    pub marks: Vec<MarkRow>,
    /// Spans.
    pub spans: Vec<SpanRow>,
    /// Ticks of records that were withdrawn.
    pub withdrawn: Vec<u64>,
}

impl Records {
    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.first_name = 0;
        self.names.clear();
        self.first_layout = 0;
        self.layouts.clear();
        self.texts.clear();
        self.calls.clear();
        self.ends.clear();
        self.tensors.clear();
        self.values.clear();
        self.marks.clear();
        self.spans.clear();
        self.withdrawn.clear();
    }

    /// Number of ticks, those of withdrawn records included.
    pub fn ticked(&self) -> usize {
        self.with_tick() + self.withdrawn.len()
    }

    fn with_tick(&self) -> usize {
        self.calls.len()
            + self.ends.len()
            + self.tensors.len()
            + self.values.len()
            + self.marks.len()
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.with_tick() + self.spans.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
