use super::*;
use crate::capture::records::{CallRow, EndRow};
use crate::materialize::calls::{CallWriter, Calls};

fn begin(noise: &mut Noise, tick: u64) -> CallRow {
    CallRow {
        tick,
        time_ns: noise.next(),
        parent: noise.below(2),
        site: noise.next() as u32,
        step: noise.next() as i64,
        phase: noise.below(3) as u8,
        thread: noise.below(4) as u32,
        flags: 1 << noise.below(32),
        callee: noise.below(300) as u32,
    }
}

fn end(noise: &mut Noise, tick: u64, call: u64) -> EndRow {
    EndRow {
        tick,
        time_ns: noise.next(),
        call,
        status: noise.below(2) as u8,
        flags: 1 << noise.below(32),
        error: noise.below(3) as u32,
    }
}

type Row = (CallRow, Option<EndRow>);

fn check(read: &Read, rows: &[Row], names: &Names) {
    fn column<T>(rows: &[Row], field: fn(&CallRow) -> T) -> Vec<Option<T>> {
        rows.iter().map(|(begin, _)| Some(field(begin))).collect()
    }
    fn end<T>(rows: &[Row], field: fn(&EndRow) -> T) -> Vec<Option<T>> {
        rows.iter()
            .map(|(_, end)| end.as_ref().map(field))
            .collect()
    }
    assert_eq!(read.numbers::<UInt64Type>("call"), column(rows, |r| r.tick));
    assert_eq!(
        read.numbers::<UInt64Type>("parent"),
        column(rows, |r| r.parent)
    );
    assert_eq!(read.numbers::<UInt32Type>("site"), column(rows, |r| r.site));
    assert_eq!(read.numbers::<Int64Type>("step"), column(rows, |r| r.step));
    assert_eq!(
        read.numbers::<UInt8Type>("phase"),
        column(rows, |r| r.phase)
    );
    assert_eq!(
        read.numbers::<UInt32Type>("thread"),
        column(rows, |r| r.thread)
    );
    let flags = |(begin, end): &Row| Some(begin.flags | end.map_or(0, |end| end.flags));
    assert_eq!(
        read.numbers::<UInt32Type>("flags"),
        rows.iter().map(flags).collect::<Vec<_>>()
    );
    let callee = |(begin, _): &Row| Some(names.text(begin.callee).to_owned());
    assert_eq!(
        read.texts("callee"),
        rows.iter().map(callee).collect::<Vec<_>>()
    );
    assert_eq!(
        read.numbers::<UInt64Type>("time_begin_ns"),
        column(rows, |r| r.time_ns)
    );
    assert_eq!(
        read.numbers::<UInt64Type>("tick_end"),
        end(rows, |r| r.tick)
    );
    assert_eq!(
        read.numbers::<UInt64Type>("time_end_ns"),
        end(rows, |r| r.time_ns)
    );
    assert_eq!(read.numbers::<UInt8Type>("status"), end(rows, |r| r.status));
    let error = |(_, end): &Row| end.map(|end| end.error).filter(|error| *error > 0);
    let errors = rows.iter().map(error);
    let texts = errors.map(|error| error.map(|error| names.text(error).to_owned()));
    assert_eq!(read.texts("error"), texts.collect::<Vec<_>>());
}

/// Calls that end in their batch, in a later one, or never; pages have all of them.
#[test]
fn ends_stand_beside_their_begins_and_are_null_where_missing() {
    let names = names(300);
    let mut noise = Noise(7);
    let folder = Folder::new();
    let mut calls = Calls::default();
    let mut writer = CallWriter::create(&folder.0).unwrap();
    let mut expected: Vec<Row> = Vec::new();
    let (mut tick, mut open) = (0, Vec::<CallRow>::new());
    for count in [9_000, 0, 1, 21_000, 300] {
        let (mut begins, mut ends) = (Vec::new(), Vec::new());
        let mut rows: Vec<Row> = Vec::new();
        // A third of the calls that are open end here.
        let (ending, staying) = open.into_iter().partition(|_| noise.below(3) == 0);
        open = staying;
        for begin in Vec::<CallRow>::into_iter(ending) {
            tick += 1;
            ends.push(end(&mut noise, tick, begin.tick));
            rows.push((begin, ends.last().copied()));
        }
        for _ in 0..count {
            tick += 2;
            let begin = begin(&mut noise, tick - 1);
            begins.push(begin);
            if noise.below(4) == 0 {
                open.push(begin);
            } else {
                ends.push(end(&mut noise, tick, begin.tick));
                rows.push((begin, ends.last().copied()));
            }
        }
        // Ends come in any order.
        ends.sort_by_key(|end| end.time_ns);
        writer
            .write(calls.complete(&begins, &ends), &names)
            .unwrap();
        expected.extend(rows);
    }
    writer.write_open(&calls.never_ended(), &names).unwrap();
    writer.finish().unwrap().publish().unwrap();
    let nulls = open.len() as u64;
    assert!(nulls > 1000);
    expected.extend(open.into_iter().map(|begin| (begin, None)));
    let read = Read::new(&folder.0.join("calls.parquet"));
    check(&read, &expected, &names);
    assert_eq!(read.bounds(0), [(Some(1), Some(tick - 1), Some(0))]);
    let ends: Vec<u64> = expected
        .iter()
        .filter_map(|(_, end)| Some(end.as_ref()?.tick))
        .collect();
    let bounds = (
        ends.iter().min().copied(),
        ends.iter().max().copied(),
        Some(nulls),
    );
    assert_eq!(read.bounds(9), [bounds]);
}

#[test]
fn row_group_of_calls_that_never_ended_has_no_bounds_of_their_ends() {
    let (names, folder) = (names(300), Folder::new());
    let mut noise = Noise(3);
    let open: Vec<CallRow> = (1..=25_000).map(|tick| begin(&mut noise, tick)).collect();
    let mut writer = CallWriter::create(&folder.0).unwrap();
    writer.write_open(&open, &names).unwrap();
    writer.finish().unwrap().publish().unwrap();
    let rows: Vec<Row> = open.into_iter().map(|begin| (begin, None)).collect();
    let read = Read::new(&folder.0.join("calls.parquet"));
    check(&read, &rows, &names);
    assert_eq!(read.bounds(9), [(None, None, Some(25_000))]);
}
