//! What recording an event of six tensors costs through the Rust interface.
//!
//! `cargo run --release --example capture_rounds -- ROUNDS` prints, as JSON, the seconds of one
//! event in each round: its begin, four tensors in, two out and its end, appended under one lock
//! as a recorder does it, with fingerprints that are new. The benchmarks read it. Times are
//! processor time of the recording thread; what it leaves to the writer's thread is published
//! between the rounds, so that the disk's speed is not measured too.

#[path = "../benches/support/clock.rs"]
mod clock;

use std::error::Error;

use xorsig::capture::append::{Begin, LayoutText};
use xorsig::capture::records::TensorRow;
use xorsig::capture::writer::{CaptureWriter, Options, WriteError};

/// Less than the batches of a full queue hold.
const EVENTS: u64 = 20_000;
const REGIONS: usize = 4;
const SLOTS: [&str; 6] = [
    "arg[0]",
    "arg[1]",
    "param.weight",
    "param.bias",
    "out",
    "out[1]",
];

/// SplitMix64.
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (*seed ^ (*seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: u64 = std::env::args().nth(1).map_or(Ok(15), |n| n.parse())?;
    let root = std::env::temp_dir().join(format!("xorsig-capture-rounds-{}", std::process::id()));
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
    let (callee, slots, layouts) = writer.append(|batch| {
        let mut slots = Vec::new();
        let mut layouts = Vec::new();
        for (index, slot) in (1..).zip(SLOTS) {
            slots.push(batch.name(slot)?);
            layouts.push(batch.layout(LayoutText {
                dtype: "float32",
                shape: vec![8, 128, 64 * index],
                strides: Some(vec![128 * 64 * index, 64 * index, 1]),
                device: "cpu",
                kind: "strided",
                logical_nbytes: 4 * 8 * 128 * 64 * index as u64,
            })?);
        }
        Ok((batch.name("torch.nn.Linear")?, slots, layouts))
    })?;
    let mut seed = 1;
    let pool: Vec<[u8; 8 * REGIONS]> = (0..4096)
        .map(|_| {
            let mut signature = [0; 8 * REGIONS];
            let words = signature.as_chunks_mut::<8>().0;
            words
                .iter_mut()
                .for_each(|word| *word = random(&mut seed).to_le_bytes());
            signature
        })
        .collect();
    let event = |number: u64| -> Result<u64, WriteError> {
        writer.append(|batch| {
            let call = batch.begin(Begin {
                parent: 0,
                site: (number % 120) as u32,
                step: (number / 120) as i64,
                phase: 0,
                thread: 0,
                flags: 4,
                callee,
            })?;
            for index in 0..SLOTS.len() {
                let signature = &pool[(number as usize * SLOTS.len() + index) % pool.len()];
                batch.tensor(TensorRow {
                    tick: 0,
                    call,
                    role: u8::from(index > 3),
                    slot: slots[index],
                    layout: layouts[index],
                    signature: Some(signature),
                    note: 0,
                })?;
            }
            batch.end(call, 0, 0, 0)
        })
    };
    let mut seconds = Vec::new();
    for round in 0..=rounds {
        writer.flush()?;
        let begin = clock::thread_seconds();
        for number in 0..EVENTS {
            event(round * EVENTS + number)?;
        }
        let elapsed = (clock::thread_seconds() - begin) / EVENTS as f64;
        // The first round pays for memory that later ones have.
        if round > 0 {
            seconds.push(elapsed.to_string());
        }
    }
    let stats = writer.close()?;
    println!(
        "{{\"seconds\": [{}], \"blocked\": {}}}",
        seconds.join(", "),
        stats.blocked
    );
    std::fs::remove_dir_all(&root)?;
    Ok(())
}
