//! Columns of the tables.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// The tables, in the order in which they are listed everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// One row per call.
    Calls,
    /// One row per tensor at the boundary of a call.
    Tensors,
    /// One row per value that is not a tensor.
    Values,
    /// One row per mark.
    Marks,
    /// One row per source expression and operator.
    Spans,
}

impl Table {
    /// Every table.
    pub const ALL: [Self; 5] = [
        Self::Calls,
        Self::Tensors,
        Self::Values,
        Self::Marks,
        Self::Spans,
    ];

    /// Name of the table's file.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Calls => "calls.parquet",
            Self::Tensors => "tensors.parquet",
            Self::Values => "values.parquet",
            Self::Marks => "marks.parquet",
            Self::Spans => "spans.parquet",
        }
    }

    /// The table's columns.
    pub fn schema(self) -> SchemaRef {
        use DataType::{Int32, Int64, UInt8, UInt32, UInt64, Utf8};
        let some = |name: &str, data_type: DataType| Field::new(name, data_type, false);
        let maybe = |name: &str, data_type: DataType| Field::new(name, data_type, true);
        let fields = match self {
            Self::Calls => vec![
                some("call", UInt64),
                some("parent", UInt64),
                some("site", UInt32),
                some("step", Int64),
                some("phase", UInt8),
                some("thread", UInt32),
                some("flags", UInt32),
                some("callee", Utf8),
                some("time_begin_ns", UInt64),
                maybe("tick_end", UInt64),
                maybe("time_end_ns", UInt64),
                maybe("status", UInt8),
                maybe("error", Utf8),
            ],
            Self::Tensors => vec![
                some("call", UInt64),
                some("tick", UInt64),
                some("role", UInt8),
                some("slot", Utf8),
                some("dtype", Utf8),
                some("shape", list(Int64)),
                maybe("strides", list(Int64)),
                some("device", Utf8),
                some("kind", Utf8),
                some("logical_nbytes", UInt64),
                maybe("xor_sig", list(UInt32)),
                maybe("mix_sig", list(UInt32)),
                maybe("note", Utf8),
            ],
            Self::Values => vec![
                some("call", UInt64),
                some("tick", UInt64),
                some("role", UInt8),
                some("slot", Utf8),
                some("value", Utf8),
            ],
            Self::Marks => vec![
                some("tick", UInt64),
                some("time_ns", UInt64),
                some("kind", UInt8),
                some("step", Int64),
                some("name", Utf8),
                some("value", Utf8),
            ],
            Self::Spans => vec![
                some("file", Utf8),
                some("qualname", Utf8),
                some("line", Int32),
                some("end_line", Int32),
                some("col", Int32),
                some("end_col", Int32),
                some("operator", Utf8),
                some("count", UInt64),
                some("flags", UInt32),
                some("example", Utf8),
            ],
        };
        Arc::new(Schema::new(fields))
    }
}

/// Field of a list's elements, under the name that the Parquet format prescribes.
pub fn element(data_type: DataType) -> Arc<Field> {
    Arc::new(Field::new("element", data_type, false))
}

fn list(data_type: DataType) -> DataType {
    DataType::List(element(data_type))
}
