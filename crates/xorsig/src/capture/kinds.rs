//! The sections of a batch.

/// The sections, in the order in which they stand in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum Kind {
    /// Names first used in this batch.
    Names = 1,
    /// Layouts first used in this batch.
    Layouts = 2,
    /// Texts of this batch's values and marks.
    Texts = 3,
    /// Begins of calls.
    Calls = 4,
    /// Ends of calls.
    Ends = 5,
    /// Tensors.
    Tensors = 6,
    /// Values.
    Values = 7,
    /// Marks.
    Marks = 8,
    /// Spans.
    Spans = 9,
    /// Ticks of withdrawn records.
    Withdrawn = 10,
}

impl Kind {
    /// Every kind, in file order.
    pub const ALL: [Self; 10] = [
        Self::Names,
        Self::Layouts,
        Self::Texts,
        Self::Calls,
        Self::Ends,
        Self::Tensors,
        Self::Values,
        Self::Marks,
        Self::Spans,
        Self::Withdrawn,
    ];

    /// The kind with this number.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u16 == number)
    }
}
