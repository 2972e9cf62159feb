//! Fingerprint kernels by size, region count and instruction set; `cargo bench` in this folder.
//!
//! For a look at one change at a time. Claims come from interleaved rounds in one run instead:
//! `nox -s bench -- fingerprint`.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use xorsig::fingerprint::layout::Layout;
use xorsig::fingerprint::level::Level;
use xorsig::fingerprint::{Fingerprint, region_xor_into, strided};
use xorsig_benches::floor;

const SIZES: [usize; 5] = [256, 1 << 10, 4 << 10, 64 << 10, 1 << 20];

fn dense(criterion: &mut Criterion) {
    for size in SIZES {
        let data: Vec<u8> = (0..size).map(|i| (i * 57 % 251) as u8).collect();
        let mut group = criterion.benchmark_group(format!("dense {size} B"));
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function("read loop", |b| b.iter(|| floor::read(black_box(&data))));
        for level in Level::available() {
            for regions in [1, 4, 64] {
                let id = BenchmarkId::new(format!("plain, {}", level.name()), regions);
                let mut out = [0; 64];
                group.bench_function(id, |b| {
                    b.iter(|| region_xor_into(level, black_box(&data), &mut out[..regions], 1));
                });
                let id = BenchmarkId::new(format!("both, {}", level.name()), regions);
                group.bench_function(id, |b| {
                    b.iter(|| {
                        let mut both = Fingerprint::new(size as u64, regions, level)?;
                        both.add(0, black_box(&data));
                        Some(both)
                    });
                });
            }
        }
        group.finish();
    }
}

fn transposed(criterion: &mut Criterion) {
    let side = 1000usize;
    for itemsize in [1, 2, 4, 8] {
        let data: Vec<u8> = (0..side * side * itemsize)
            .map(|i| (i % 251) as u8)
            .collect();
        let mut group = criterion.benchmark_group(format!("transpose of {itemsize}-byte items"));
        group.throughput(Throughput::Bytes(data.len() as u64));
        let layout = Layout::new(&[side, side], &[1, side as isize], itemsize).expect("a layout");
        for level in Level::available() {
            group.bench_function(level.name(), |b| {
                // SAFETY: the layout covers exactly the bytes of `data`.
                b.iter(|| unsafe { strided::fingerprint(data.as_ptr(), &layout, 4, level, 1) });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, dense, transposed);
criterion_main!(benches);
