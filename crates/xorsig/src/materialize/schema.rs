//! Columns of the tables.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// The tables, in the order in which they are listed everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// One row per call.
    Calls,
    /// One row per layout of a tensor.
    Layouts,
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
    /// Name of the table's file.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Calls => "calls.parquet",
            Self::Layouts => "layouts.parquet",
            Self::Tensors => "tensors.parquet",
            Self::Values => "values.parquet",
            Self::Marks => "marks.parquet",
            Self::Spans => "spans.parquet",
        }
    }

    /// The table's columns. Names are dictionaries in memory only: the file has plain texts.
    pub fn schema(self) -> SchemaRef {
        use DataType::{Int32, Int64, UInt8, UInt32, UInt64, Utf8};
        let name = || DataType::Dictionary(Box::new(UInt32), Box::new(Utf8));
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
                some("callee", name()),
                some("time_begin_ns", UInt64),
                maybe("tick_end", UInt64),
                maybe("time_end_ns", UInt64),
                maybe("status", UInt8),
                maybe("error", name()),
            ],
            Self::Layouts => vec![
                some("layout", UInt32),
                some("dtype", name()),
                some("shape", list(Int64)),
                maybe("strides", list(Int64)),
                some("device", name()),
                some("kind", name()),
                some("logical_nbytes", UInt64),
            ],
            Self::Tensors => vec![
                some("call", UInt64),
                some("tick", UInt64),
                some("role", UInt8),
                some("slot", name()),
                some("layout", UInt32),
                maybe("xor_sig", list(UInt32)),
                maybe("mix_sig", list(UInt32)),
                maybe("note", name()),
            ],
            Self::Values => vec![
                some("call", UInt64),
                some("tick", UInt64),
                some("role", UInt8),
                some("slot", name()),
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
