//! Arrow schemas of the sections of a batch.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

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
}

impl Kind {
    /// Every kind, in file order.
    pub const ALL: [Self; 9] = [
        Self::Names,
        Self::Layouts,
        Self::Texts,
        Self::Calls,
        Self::Ends,
        Self::Tensors,
        Self::Values,
        Self::Marks,
        Self::Spans,
    ];

    /// The kind with this number.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u16 == number)
    }

    /// The section's schema; a signature has two values of 4 bytes per region.
    pub fn schema(self, regions: u32) -> SchemaRef {
        use DataType::{Int32, Int64, UInt8, UInt32, UInt64, Utf8};
        let field = |name: &str, data_type: DataType| Field::new(name, data_type, false);
        let fields = match self {
            Self::Names => vec![field("id", UInt32), field("text", Utf8)],
            Self::Layouts => vec![
                field("id", UInt32),
                field("dtype", UInt32),
                field("shape", list_of_i64()),
                Field::new("strides", list_of_i64(), true),
                field("device", UInt32),
                field("kind", UInt32),
                field("logical_nbytes", UInt64),
            ],
            Self::Texts => vec![field("text", Utf8)],
            Self::Calls => vec![
                field("tick_delta", UInt32),
                field("time_delta_ns", UInt64),
                field("parent", UInt64),
                field("site", UInt32),
                field("step", Int64),
                field("phase", UInt8),
                field("thread", UInt32),
                field("flags", UInt32),
                field("callee", UInt32),
            ],
            Self::Ends => vec![
                field("tick_delta", UInt32),
                field("time_delta_ns", UInt64),
                field("call_distance", UInt64),
                field("status", UInt8),
                field("flags", UInt32),
                field("error", UInt32),
            ],
            Self::Tensors => vec![
                field("tick_delta", UInt32),
                field("call_delta", Int64),
                field("role", UInt8),
                field("slot", UInt32),
                field("layout", UInt32),
                field("note", UInt32),
                Field::new(
                    "signature",
                    DataType::FixedSizeBinary(8 * regions as i32),
                    true,
                ),
            ],
            Self::Values => vec![
                field("tick_delta", UInt32),
                field("call_delta", Int64),
                field("role", UInt8),
                field("slot", UInt32),
                field("text", UInt32),
            ],
            Self::Marks => vec![
                field("tick_delta", UInt32),
                field("time_delta_ns", UInt64),
                field("kind", UInt8),
                field("step", Int64),
                field("name", UInt32),
                field("text", UInt32),
            ],
            Self::Spans => vec![
                field("file", UInt32),
                field("qualname", UInt32),
                field("line", Int32),
                field("end_line", Int32),
                field("col", Int32),
                field("end_col", Int32),
                field("operator", UInt32),
                field("count", UInt64),
                field("flags", UInt32),
                field("example", UInt32),
            ],
        };
        Arc::new(Schema::new(fields))
    }
}

/// The list type of shapes and strides.
pub fn list_of_i64() -> DataType {
    DataType::List(Arc::new(Field::new("item", DataType::Int64, false)))
}
