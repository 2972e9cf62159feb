//! Tables of many rows, read back by the `parquet` crate. All tables are read by other engines in
//! the tests of the Python package.

mod calls;
mod tensors;

use std::fs::File;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int64Type, UInt8Type, UInt32Type, UInt64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;

use super::names::Names;
use crate::capture::tests::Folder;

/// A table's rows, and what its footer says about its row groups.
struct Read {
    batches: Vec<RecordBatch>,
    groups: Vec<RowGroupMetaData>,
}

impl Read {
    fn new(path: &Path) -> Self {
        let file = File::open(path).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let groups = reader.metadata().row_groups().to_vec();
        let batches = reader.build().unwrap().map(Result::unwrap).collect();
        Self { batches, groups }
    }

    fn numbers<T: ArrowPrimitiveType>(&self, column: &str) -> Vec<Option<T::Native>> {
        let batches = self.batches.iter();
        let columns = batches.map(|batch| batch.column_by_name(column).unwrap());
        columns.flat_map(|c| c.as_primitive::<T>()).collect()
    }

    fn texts(&self, column: &str) -> Vec<Option<String>> {
        let batches = self.batches.iter();
        let columns = batches.map(|batch| batch.column_by_name(column).unwrap());
        let texts = columns.flat_map(|c| c.as_string::<i32>());
        texts.map(|text| text.map(str::to_owned)).collect()
    }

    fn lists(&self, column: &str) -> Vec<Option<Vec<u32>>> {
        let batches = self.batches.iter();
        let columns = batches.map(|batch| batch.column_by_name(column).unwrap());
        let lists = columns.flat_map(|c| c.as_list::<i32>().iter().collect::<Vec<_>>());
        let values =
            |list: arrow_array::ArrayRef| list.as_primitive::<UInt32Type>().values().to_vec();
        lists.map(|list| list.map(values)).collect()
    }

    /// Least and largest value of each row group, and its nulls.
    fn bounds(&self, column: usize) -> Vec<(Option<u64>, Option<u64>, Option<u64>)> {
        let unsigned = |bound: Option<&i64>| bound.map(|bound| *bound as u64);
        let bounds = |group: &RowGroupMetaData| match group.column(column).statistics() {
            Some(Statistics::Int64(values)) => (
                unsigned(values.min_opt()),
                unsigned(values.max_opt()),
                values.null_count_opt(),
            ),
            other => panic!("{other:?}"),
        };
        self.groups.iter().map(bounds).collect()
    }
}

fn some<T: Clone>(values: &[T]) -> Vec<Option<T>> {
    values.iter().cloned().map(Some).collect()
}

/// Names `name-1` to `name-<count>` behind the empty one.
fn names(count: u32) -> Names {
    let mut names = Names::default();
    let texts = (1..=count).map(|id| format!("name-{id}")).collect();
    names.define(texts).unwrap();
    names
}

/// Numbers without a pattern, the same for the same seed.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        // Splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
