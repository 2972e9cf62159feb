//! What a tensor record costs on disk and in time, measured on a synthetic training.
//!
//! `cargo run --release --example capture_size [STEPS]` writes a capture with the shape of a
//! real one (a transformer's steps: calls in call order, 4 to 8 tensors each, parameters whose
//! fingerprints repeat until the optimizer runs, random fingerprints elsewhere) and prints bytes
//! per tensor record, everything else included; then the same with every fingerprint new.

use std::error::Error;
use std::time::Instant;

use xorsig::capture::append::{Begin, LayoutText};
use xorsig::capture::reader::{CaptureReader, Expected};
use xorsig::capture::records::TensorRow;
use xorsig::capture::writer::{CaptureWriter, Options};

/// Callsites of one step: module calls with parameters and operator calls without.
const SITES: u32 = 120;
const PARAMETERS: u64 = 60;
const REGIONS: usize = 4;

/// SplitMix64.
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (*seed ^ (*seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn signature(seed: &mut u64) -> Vec<u8> {
    (0..REGIONS)
        .flat_map(|_| random(seed).to_le_bytes())
        .collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let steps: i64 = std::env::args().nth(1).map_or(Ok(500), |n| n.parse())?;
    for repeat in [true, false] {
        measure(steps, repeat)?;
    }
    Ok(())
}

/// Writes, verifies and measures one capture; `repeat` lets parameters keep their fingerprint
/// within a step, else every fingerprint is new.
fn measure(steps: i64, repeat: bool) -> Result<(), Box<dyn Error>> {
    let root = std::env::temp_dir().join(format!("xorsig-capture-size-{}", std::process::id()));
    let options = Options {
        directory: root.join("rank-0"),
        staging: root.join("staging"),
        capture_id: [7; 16],
        rank: 0,
        regions: REGIONS as u32,
        max_batch_records: 65_536,
        queue_batches: 4,
    };
    let writer = CaptureWriter::new(&options)?;
    let mut seed = 1;
    let (mut tensors, mut records) = (0u64, 0u64);
    let started = Instant::now();
    for step in 0..steps {
        for site in 0..SITES {
            let parent = 0;
            let (slots, layouts, callee) = writer.append(|batch| {
                let slots = [
                    "self",
                    "arg[0]",
                    "arg[1]",
                    "param.weight",
                    "param.bias",
                    "out",
                    "grad.out",
                ];
                let slots = slots.map(|slot| batch.name(slot));
                let layouts = [1, 2, 3, 4].map(|k| {
                    let width = i64::from(site % 6 + 1) * 64;
                    batch.layout(LayoutText {
                        dtype: "torch.float32",
                        shape: vec![8 * k, 128, width],
                        strides: Some(vec![128 * width, width, 1]),
                        device: "cpu",
                        kind: "strided",
                        logical_nbytes: (8 * k * 128 * width * 4) as u64,
                    })
                });
                let callee = batch
                    .name(["torch.nn.Linear", "torch.matmul", "layer_norm"][site as usize % 3])?;
                Ok((slots, layouts, callee))
            })?;
            let begin = Begin {
                parent,
                site,
                step,
                phase: 0,
                thread: 0,
                flags: 4,
                callee,
            };
            let call = writer.append(|batch| batch.begin(begin))?;
            // Role, slot and, for a parameter, which of those whose values repeat within a step.
            let mut row =
                |role: u8, slot: usize, parameter: Option<u64>| -> Result<(), Box<dyn Error>> {
                    let signature = match parameter {
                        Some(id) if repeat => signature(&mut (step as u64 * PARAMETERS + id)),
                        _ => signature(&mut seed),
                    };
                    let row = TensorRow {
                        tick: 0,
                        call,
                        role,
                        slot: slots[slot].clone()?,
                        layout: layouts[slot % 4].clone()?,
                        signature: Some(&signature),
                        note: 0,
                    };
                    writer.append(|batch| batch.tensor(row))?;
                    tensors += 1;
                    records += 1;
                    Ok(())
                };
            row(0, 1, None)?;
            if site % 3 == 0 {
                let parameter = u64::from(site) % PARAMETERS;
                row(0, 3, Some(parameter))?;
                row(0, 4, Some(parameter + 1))?;
            } else {
                row(0, 2, None)?;
            }
            row(1, 5, None)?;
            row(4, 6, None)?;
            if site % 10 == 0 {
                let slot = slots[1].clone()?;
                writer.append(|batch| batch.value(call, 0, slot, "0.5"))?;
                records += 1;
            }
            writer.append(|batch| batch.end(call, 0, 0, 0))?;
            records += 2;
        }
        writer.append(|batch| batch.mark(0, step, 0, ""))?;
        records += 1;
    }
    let stats = writer.close()?;
    let elapsed = started.elapsed();
    let reading = Instant::now();
    let expected = Expected {
        batches: Some(stats.batches),
        records: Some(records),
    };
    CaptureReader::open(&options.directory, options.capture_id, 0, expected)?.finish()?;
    let per = |total: f64, count: u64| total / count as f64;
    println!(
        "repeated parameters: {repeat}; {records} records, {tensors} tensors, {} batches, {} bytes",
        stats.batches, stats.bytes
    );
    println!(
        "  {:.1} bytes per tensor record, {:.1} per record",
        per(stats.bytes as f64, tensors),
        per(stats.bytes as f64, records)
    );
    println!(
        "  {:.0} ns per record to write, {:.0} to verify, {} waits",
        per(elapsed.as_nanos() as f64, records),
        per(reading.elapsed().as_nanos() as f64, records),
        stats.blocked
    );
    std::fs::remove_dir_all(&root)?;
    Ok(())
}
