use proptest::prelude::*;

use super::*;
use crate::capture::records::{TensorRow, Tensors};
use crate::materialize::ROW_GROUP_ROWS;
use crate::materialize::tensors::TensorWriter;

/// Rows of every kind that a batch can hold: numbers near both ends, absent signatures, notes.
fn rows(noise: &mut Noise, count: usize, regions: usize, names: u32, absent: u64) -> Tensors {
    let mut tensors = Tensors::default();
    let width = 8 * regions;
    for _ in 0..count {
        let signature: Vec<u8> = (0..width).map(|_| noise.next() as u8).collect();
        let present = noise.below(8) >= absent;
        let ends = [
            0,
            1,
            u64::MAX - 1,
            u64::MAX,
            noise.next(),
            noise.below(1000),
        ];
        let row = TensorRow {
            tick: ends[noise.below(6) as usize],
            call: ends[noise.below(6) as usize],
            role: noise.below(256) as u8,
            slot: noise.below(u64::from(names) + 1) as u32,
            layout: [0, u32::MAX, noise.next() as u32][noise.below(3) as usize],
            signature: present.then_some(&signature),
            note: if present { 0 } else { noise.below(3) as u32 },
        };
        tensors.push(row, width);
    }
    tensors
}

/// Writes batches, in a thread or not, and reads the table.
fn table(batches: &[(Tensors, &Names)], regions: usize, threaded: bool) -> Read {
    let folder = Folder::new();
    let mut writer = TensorWriter::create(&folder.0, threaded).unwrap();
    for (tensors, names) in batches {
        writer.write(&mut tensors.clone(), regions, names).unwrap();
    }
    writer.finish().unwrap().publish().unwrap();
    Read::new(&folder.0.join("tensors.parquet"))
}

fn check(read: &Read, batches: &[(Tensors, &Names)], regions: usize) {
    let all = |column: fn(&Tensors) -> &Vec<u64>| {
        let columns = batches
            .iter()
            .map(|(tensors, _)| column(tensors).as_slice());
        columns.collect::<Vec<_>>().concat()
    };
    let (calls, ticks) = (all(|t| &t.calls), all(|t| &t.ticks));
    assert_eq!(read.numbers::<UInt64Type>("call"), some(&calls));
    assert_eq!(read.numbers::<UInt64Type>("tick"), some(&ticks));
    let bounds = |values: &[u64]| -> Vec<_> {
        let groups = values.chunks(ROW_GROUP_ROWS);
        groups
            .map(|group| {
                (
                    group.iter().min().copied(),
                    group.iter().max().copied(),
                    Some(0),
                )
            })
            .collect()
    };
    assert_eq!(read.bounds(0), bounds(&calls));
    assert_eq!(read.bounds(1), bounds(&ticks));
    let width = 8 * regions;
    let rows = batches
        .iter()
        .flat_map(|(t, names)| (0..t.len()).map(move |i| (t.row(i, width), *names)));
    let rows: Vec<(TensorRow<'_>, &Names)> = rows.collect();
    let roles: Vec<u8> = rows.iter().map(|(row, _)| row.role).collect();
    let layouts: Vec<u32> = rows.iter().map(|(row, _)| row.layout).collect();
    assert_eq!(read.numbers::<UInt8Type>("role"), some(&roles));
    assert_eq!(read.numbers::<UInt32Type>("layout"), some(&layouts));
    let text = |id: u32, names: &Names| names.text(id).to_owned();
    let slots: Vec<_> = rows
        .iter()
        .map(|(row, n)| Some(text(row.slot, n)))
        .collect();
    let notes = |(row, n): &(TensorRow<'_>, &Names)| (row.note > 0).then(|| text(row.note, n));
    assert_eq!(read.texts("slot"), slots);
    assert_eq!(
        read.texts("note"),
        rows.iter().map(notes).collect::<Vec<_>>()
    );
    for (scheme, column) in ["xor_sig", "mix_sig"].into_iter().enumerate() {
        let words = |bytes: &[u8]| {
            let half = &bytes[scheme * 4 * regions..][..4 * regions];
            let words = half.as_chunks::<4>().0.iter();
            words.map(|word| u32::from_le_bytes(*word)).collect()
        };
        let lists = rows.iter().map(|(row, _)| row.signature.map(words));
        assert!(
            read.lists(column) == lists.collect::<Vec<_>>(),
            "{column} differs"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn rows_of_batches_are_those_of_the_table(
        seed: u64,
        counts in prop::collection::vec(0usize..300, 0..5),
        regions in prop::sample::select(vec![1usize, 3, 4, 64]),
        names_count in 1u32..400,
        absent in prop::sample::select(vec![0u64, 1, 8]),
        threaded: bool,
    ) {
        let names = names(names_count.max(2));
        let mut noise = Noise(seed);
        let mut batch = |count: &usize| rows(&mut noise, *count, regions, names_count, absent);
        let batches: Vec<_> = counts.iter().map(|count| (batch(count), &names)).collect();
        check(&table(&batches, regions, threaded), &batches, regions);
    }
}

/// Batches end inside of pages and of row groups, and at their ends.
#[test]
fn pages_and_row_groups_end_anywhere() {
    let names = names(300);
    for (counts, absent) in [
        (vec![ROW_GROUP_ROWS - 1, 0, 2, 19_999, 20_000], 1),
        (vec![ROW_GROUP_ROWS], 0),
        (vec![20_000, 1, 2 * ROW_GROUP_ROWS], 0),
    ] {
        let mut noise = Noise(counts.len() as u64);
        let mut batch = |count: usize| rows(&mut noise, count, 1, 300, absent);
        let total: usize = counts.iter().sum();
        let batches: Vec<_> = counts
            .into_iter()
            .map(|count| (batch(count), &names))
            .collect();
        let read = table(&batches, 1, false);
        check(&read, &batches, 1);
        let groups: Vec<_> = read.groups.iter().map(|group| group.num_rows()).collect();
        let mut expected = vec![ROW_GROUP_ROWS as i64; total / ROW_GROUP_ROWS];
        expected.extend(Some((total % ROW_GROUP_ROWS) as i64).filter(|rest| *rest > 0));
        assert_eq!(groups, expected);
    }
}

/// Indices of the first pages have fewer bits than those of the last ones.
#[test]
fn dictionaries_grow_past_each_width() {
    let (few, many) = (names(200), names(70_000));
    let with_slots = |slots: std::ops::RangeInclusive<u32>| {
        let mut tensors = rows(&mut Noise(1), slots.clone().count(), 1, 1, 0);
        tensors.slots = slots.collect();
        tensors
    };
    let batches = [
        (with_slots(0..=200), &few),
        (with_slots(1..=70_000), &many),
        (with_slots(7..=90), &many),
    ];
    check(&table(&batches, 1, true), &batches, 1);
}

#[test]
fn table_without_rows_has_no_row_groups() {
    let names = names(1);
    for batches in [vec![], vec![(Tensors::default(), &names)]] {
        let read = table(&batches, 0, false);
        assert_eq!(read.groups, []);
        check(&read, &batches, 0);
    }
}

/// What repeats takes little space; what does not takes no more than itself.
#[test]
fn signatures_that_repeat_are_compressed() {
    let names = names(1);
    let noise = rows(&mut Noise(5), 20_000, 4, 1, 0);
    let mut repeated = noise.clone();
    for i in 100..20_000 {
        repeated
            .signatures
            .copy_within((i - 100) * 32..(i - 99) * 32, i * 32);
    }
    let stored = |tensors: &Tensors| {
        let batches = [(tensors.clone(), &names)];
        let read = table(&batches, 4, false);
        check(&read, &batches, 4);
        read.groups[0].column(5).compressed_size()
    };
    let raw = 20_000 * 16;
    assert!(stored(&repeated) < raw / 20);
    assert!(stored(&noise) < raw + raw / 100);
}
