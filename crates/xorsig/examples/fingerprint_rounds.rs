//! Times the fingerprint kernels against a loop that only reads, in interleaved rounds.
//!
//! `cargo run --release --example fingerprint_rounds [ROUNDS]` prints one JSON object: for each
//! size, the seconds that one pass took in each round, by subject. `nox -s bench -- fingerprint`
//! runs it and sets the ratios beside their targets. Times are processor time of the thread, so
//! that other processes on the machine count as little as possible.

#[path = "../benches/support/clock.rs"]
mod clock;
#[path = "../benches/support/floor.rs"]
mod floor;

use std::collections::BTreeMap;
use std::hint::black_box;

use xorsig::fingerprint;
use xorsig::fingerprint::level::Level;

/// (name, bytes); below 4 KiB the set-up of the regions shows, above 2 MiB the memory.
const SIZES: [(&str, usize); 7] = [
    ("64 MiB", 64 << 20),
    ("16 MiB", 16 << 20),
    ("1 MiB", 1 << 20),
    ("64 KiB", 64 << 10),
    ("4 KiB", 4 << 10),
    ("1 KiB", 1 << 10),
    ("256 B", 256),
];
/// A sample reads at least this many bytes.
const SAMPLE_BYTES: usize = 48 << 20;
/// A page-aligned start, as large tensors have, whatever the allocator returns.
const ALIGN: usize = 4096;

type Subject<'a> = (&'static str, Box<dyn Fn() + 'a>);

fn subjects(aligned: &[u8], odd: &[u8]) -> Vec<Subject<'static>> {
    // SAFETY: the caller drops the subjects before the bytes.
    let (aligned, odd): (&'static [u8], &'static [u8]) =
        unsafe { (&*std::ptr::from_ref(aligned), &*std::ptr::from_ref(odd)) };
    fn plain(data: &'static [u8], regions: usize) -> Box<dyn Fn()> {
        let level = Level::detect();
        Box::new(move || {
            let mut out = [0; fingerprint::MAX_REGIONS];
            let out = &mut out[..regions];
            fingerprint::region_xor_into(level, black_box(data), out, 1);
            black_box(out);
        })
    }
    fn both(data: &'static [u8], regions: usize) -> Box<dyn Fn()> {
        Box::new(move || {
            black_box(&fingerprint::fingerprint(black_box(data), regions));
        })
    }
    vec![
        (
            "read loop",
            Box::new(move || {
                black_box(floor::read(black_box(aligned)));
            }),
        ),
        ("plain R=1", plain(aligned, 1)),
        ("plain R=4", plain(aligned, 4)),
        ("plain R=64", plain(aligned, 64)),
        ("plain R=4, odd address", plain(odd, 4)),
        ("plain R=64, odd address", plain(odd, 64)),
        ("both R=1", both(aligned, 1)),
        ("both R=4", both(aligned, 4)),
        ("both R=64", both(aligned, 64)),
        ("both R=4, odd address", both(odd, 4)),
    ]
}

fn main() {
    let rounds: usize = std::env::args()
        .nth(1)
        .map_or(15, |n| n.parse().expect("a number of rounds"));
    let mut report = BTreeMap::new();
    for (name, size) in SIZES {
        let buffer: Vec<u8> = (0..size + ALIGN + 64)
            .map(|i| (i * 57 % 251) as u8)
            .collect();
        let start = buffer.as_ptr().align_offset(ALIGN);
        let subjects = subjects(
            &buffer[start..start + size],
            &buffer[start + 1..start + 1 + size],
        );
        let repeats = (SAMPLE_BYTES / size).clamp(1, 200_000);
        let mut seconds: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for round in 0..=rounds {
            for turn in 0..subjects.len() {
                let (label, run) = &subjects[(turn + round) % subjects.len()];
                run();
                let begin = clock::thread_seconds();
                for _ in 0..repeats {
                    run();
                }
                let sample = (clock::thread_seconds() - begin) / repeats as f64;
                if round > 0 {
                    seconds.entry(label).or_default().push(sample);
                }
            }
        }
        drop(subjects);
        report.insert(
            name,
            serde_json::json!({ "bytes": size, "seconds": seconds }),
        );
    }
    println!("{}", serde_json::to_string(&report).expect("plain numbers"));
}
