//! The table of calls: begins joined with their ends.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use arrow_array::StringArray;
use parquet::errors::ParquetError;

use super::names::Names;
use super::output::{Finished, Unfinished};
use super::pages::chunk::Press;
use super::pages::file::PagesFile;
use super::pages::names::NameColumn;
use super::pages::numbers::Numbers;
use super::pages::table::{Columns, PagesTable};
use super::schema::Table;
use super::{MaterializeError, table_error};
use crate::capture::records::{CallRow, EndRow};

/// Rows whose columns are gathered at a time, few enough to stay in the nearest cache.
const GATHERED_ROWS: usize = 256;

/// A call that ended; its flags are those of begin and end together.
#[derive(Clone, Copy)]
pub struct Ended {
    begin: CallRow,
    end: EndRow,
}

/// The calls that have begun and not ended yet.
#[derive(Default)]
pub struct Calls {
    open: HashMap<u64, CallRow>,
    /// Memory for [`Self::complete`]: the calls of a batch, and places of their ends.
    ended: Vec<Ended>,
    places: Vec<usize>,
}

impl Calls {
    /// Takes the begins and ends of a batch; returns the calls that are complete with it, in the
    /// order in which they began.
    pub fn complete(&mut self, begins: &[CallRow], ends: &[EndRow]) -> &[Ended] {
        // Most calls end in the batch in which they began: those ends are found by the tick.
        let first = begins.first().map_or(u64::MAX, |begin| begin.tick);
        let last = begins.last().map_or(0, |begin| begin.tick);
        let ticks = last.saturating_sub(first) as usize + 1;
        let place = |tick: u64| tick.checked_sub(first).map(|index| index as usize);
        self.places.clear();
        self.places.resize(ticks, usize::MAX);
        self.ended.clear();
        // The reader has checked that every end belongs to an open call.
        for (index, end) in ends.iter().enumerate() {
            match place(end.call).and_then(|place| self.places.get_mut(place)) {
                Some(place) => *place = index,
                None => {
                    let begin = self.open.remove(&end.call);
                    self.ended.extend(begin.map(|begin| joined(begin, *end)));
                }
            }
        }
        self.ended.sort_unstable_by_key(|call| call.begin.tick);
        for begin in begins {
            let index = place(begin.tick).map_or(usize::MAX, |place| self.places[place]);
            match ends.get(index) {
                Some(end) => self.ended.push(joined(*begin, *end)),
                None => drop(self.open.insert(begin.tick, *begin)),
            }
        }
        &self.ended
    }

    /// The calls that never ended, in the order in which they began.
    pub fn never_ended(self) -> Vec<CallRow> {
        let mut calls: Vec<CallRow> = self.open.into_values().collect();
        calls.sort_unstable_by_key(|call| call.tick);
        calls
    }
}

fn joined(mut begin: CallRow, end: EndRow) -> Ended {
    begin.flags |= end.flags;
    Ended { begin, end }
}

/// Writes the table.
pub struct CallWriter {
    table: PagesTable<CallColumns>,
    unfinished: Unfinished,
}

impl CallWriter {
    /// Creates the file in the directory `output`.
    pub fn create(output: &Path) -> Result<Self, MaterializeError> {
        let (file, unfinished) = Unfinished::create(output, Table::Calls)?;
        let table = PagesTable::new(file, Table::Calls).map_err(table_error(unfinished.path()))?;
        Ok(Self { table, unfinished })
    }

    /// Appends calls that ended. `names` has every name that they refer to.
    pub fn write(&mut self, calls: &[Ended], names: &Names) -> Result<(), MaterializeError> {
        let mut parts = calls.chunks(GATHERED_ROWS).map(Rows::Ended);
        parts
            .try_for_each(|rows| self.table.write(rows, names.array()))
            .map_err(table_error(self.unfinished.path()))
    }

    /// Appends calls that never ended.
    pub fn write_open(&mut self, calls: &[CallRow], names: &Names) -> Result<(), MaterializeError> {
        let mut parts = calls.chunks(GATHERED_ROWS).map(Rows::Open);
        parts
            .try_for_each(|rows| self.table.write(rows, names.array()))
            .map_err(table_error(self.unfinished.path()))
    }

    /// Completes the file.
    pub fn finish(self) -> Result<Finished, MaterializeError> {
        let Self { table, unfinished } = self;
        let file = table.finish().map_err(table_error(unfinished.path()))?;
        unfinished.finish(&file)
    }
}

/// Rows of the table.
#[derive(Clone, Copy)]
enum Rows<'a> {
    Ended(&'a [Ended]),
    Open(&'a [CallRow]),
}

/// The columns of the table.
struct CallColumns {
    calls: Numbers<u64>,
    parents: Numbers<u64>,
    sites: Numbers<u32>,
    steps: Numbers<i64>,
    phases: Numbers<u8>,
    threads: Numbers<u32>,
    flags: Numbers<u32>,
    callees: NameColumn,
    begin_times: Numbers<u64>,
    end_ticks: Numbers<u64>,
    end_times: Numbers<u64>,
    statuses: Numbers<u8>,
    errors: NameColumn,
}

impl Columns for CallColumns {
    type Rows<'a> = Rows<'a>;

    fn new(file: &PagesFile) -> Self {
        let column = |index| file.column(index);
        Self {
            calls: Numbers::new(column(0)),
            parents: Numbers::new(column(1)),
            sites: Numbers::new(column(2)),
            steps: Numbers::new(column(3)),
            phases: Numbers::new(column(4)),
            threads: Numbers::new(column(5)),
            flags: Numbers::new(column(6)),
            callees: NameColumn::new(column(7)),
            begin_times: Numbers::new(column(8)),
            end_ticks: Numbers::new(column(9)),
            end_times: Numbers::new(column(10)),
            statuses: Numbers::new(column(11)),
            errors: NameColumn::new(column(12)),
        }
    }

    fn count(rows: Rows<'_>) -> usize {
        match rows {
            Rows::Ended(calls) => calls.len(),
            Rows::Open(calls) => calls.len(),
        }
    }

    fn append(
        &mut self,
        rows: Rows<'_>,
        range: Range<usize>,
        press: &mut Press,
    ) -> Result<(), ParquetError> {
        match rows {
            Rows::Ended(calls) => {
                let calls = &calls[range];
                self.append_begins(calls.iter().map(|call| &call.begin), press)?;
                self.append_ends(calls.iter().map(|call| &call.end), press)
            }
            Rows::Open(calls) => {
                let calls = &calls[range];
                self.append_begins(calls.iter(), press)?;
                self.append_no_ends(calls.len(), press)
            }
        }
    }

    fn finish(
        &mut self,
        names: &StringArray,
        file: &mut PagesFile,
        press: &mut Press,
    ) -> Result<(), ParquetError> {
        self.calls.finish(file, press)?;
        self.parents.finish(file, press)?;
        self.sites.finish(file, press)?;
        self.steps.finish(file, press)?;
        self.phases.finish(file, press)?;
        self.threads.finish(file, press)?;
        self.flags.finish(file, press)?;
        self.callees.finish(names, file, press)?;
        self.begin_times.finish(file, press)?;
        self.end_ticks.finish(file, press)?;
        self.end_times.finish(file, press)?;
        self.statuses.finish(file, press)?;
        self.errors.finish(names, file, press)
    }
}

impl CallColumns {
    fn append_begins<'a>(
        &mut self,
        rows: impl Iterator<Item = &'a CallRow> + Clone,
        press: &mut Press,
    ) -> Result<(), ParquetError> {
        self.calls.append(&gather(&rows, |r| r.tick), press)?;
        self.parents.append(&gather(&rows, |r| r.parent), press)?;
        self.sites.append(&gather(&rows, |r| r.site), press)?;
        self.steps.append(&gather(&rows, |r| r.step), press)?;
        self.phases.append(&gather(&rows, |r| r.phase), press)?;
        self.threads.append(&gather(&rows, |r| r.thread), press)?;
        self.flags.append(&gather(&rows, |r| r.flags), press)?;
        self.callees.append(&gather(&rows, |r| r.callee), press)?;
        self.begin_times
            .append(&gather(&rows, |r| r.time_ns), press)
    }

    fn append_ends<'a>(
        &mut self,
        rows: impl Iterator<Item = &'a EndRow> + Clone,
        press: &mut Press,
    ) -> Result<(), ParquetError> {
        self.end_ticks.append(&gather(&rows, |r| r.tick), press)?;
        self.end_times
            .append(&gather(&rows, |r| r.time_ns), press)?;
        self.statuses.append(&gather(&rows, |r| r.status), press)?;
        self.errors.append(&gather(&rows, |r| r.error), press)
    }

    fn append_no_ends(&mut self, count: usize, press: &mut Press) -> Result<(), ParquetError> {
        self.end_ticks.append_nulls(count, press)?;
        self.end_times.append_nulls(count, press)?;
        self.statuses.append_nulls(count, press)?;
        // The empty name is no error.
        self.errors.append(&vec![0; count], press)
    }
}

/// A column of some rows.
fn gather<'a, R: 'a, T>(
    rows: &(impl Iterator<Item = &'a R> + Clone),
    field: impl Fn(&R) -> T,
) -> Vec<T> {
    rows.clone().map(field).collect()
}
