//! What each fingerprint scheme cannot see, measured.
//!
//! `cargo run --release --example blindness` prints the two tables of
//! `docs/formats/fingerprint.md`: how often a changed tensor keeps its value, per kind of change
//! and candidate scheme, then how often the same bits flipped in two words go unseen, estimated
//! from all pairs of 2^20 words (about 2^39 pairs, so that rates down to 2^-36 show).

/// One candidate: the contribution of a word at a global word index.
type Mix = fn(u32, u64) -> u32;

const GOLDEN: u32 = 0x9E37_79B1;
const FIRST: u32 = 0x7FEB_352D;
const SECOND: u32 = 0x846C_A68B;

fn key(index: u64) -> u32 {
    (index as u32).wrapping_mul(GOLDEN)
}

/// `flat-u32-le-v1`: the word itself.
fn plain(word: u32, _index: u64) -> u32 {
    word
}

/// One multiplication after the key.
fn one_multiply(word: u32, index: u64) -> u32 {
    let x = word ^ key(index);
    (x ^ (x >> 15)).wrapping_mul(FIRST)
}

/// lowbias32 without its last shift, which XOR makes worthless: a function of `word ^ key` alone.
fn two_multiplies(word: u32, index: u64) -> u32 {
    let x = word ^ key(index);
    let x = (x ^ (x >> 16)).wrapping_mul(FIRST);
    (x ^ (x >> 15)).wrapping_mul(SECOND)
}

/// `flat-u32-mix-v1` with lowbias32's first shift of 16.
fn shift_16(word: u32, index: u64) -> u32 {
    let x = two_multiplies(word, index);
    (x ^ (x >> 15)).wrapping_add(key(index))
}

const CANDIDATES: [(&str, Mix); 5] = [
    ("flat-u32-le-v1", plain),
    ("one multiply", one_multiply),
    ("two multiplies", two_multiplies),
    ("+ key, shift 16", shift_16),
    ("flat-u32-mix-v1", xorsig::fingerprint::mix),
];

/// SplitMix64, so that the run needs no dependency and repeats exactly.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Roughly normal: the sum of four uniforms, as a training tensor's values look.
    fn float(&mut self) -> u32 {
        let sum: f32 = (0..4)
            .map(|_| (self.next() >> 40) as f32 / (1u64 << 24) as f32)
            .sum();
        ((sum - 2.0) * 1.7).to_bits()
    }

    fn tensor(&mut self, words: usize) -> Vec<u32> {
        (0..words).map(|_| self.float()).collect()
    }
}

fn value(mix: Mix, words: &[u32]) -> u32 {
    words
        .iter()
        .enumerate()
        .fold(0, |acc, (i, &w)| acc ^ mix(w, i as u64))
}

/// A kind of change: draws a tensor and its changed form.
type Change = fn(&mut Random) -> (Vec<u32>, Vec<u32>);

const COLUMNS: usize = 16;

fn even(random: &mut Random) -> usize {
    2 * COLUMNS * (1 + random.below(16))
}

fn constant(random: &mut Random) -> (Vec<u32>, Vec<u32>) {
    let n = even(random);
    (vec![random.float(); n], vec![random.float(); n])
}

fn words_swapped(random: &mut Random) -> (Vec<u32>, Vec<u32>) {
    let n = even(random);
    let a = random.tensor(n);
    let mut b = a.clone();
    b.swap(random.below(n), random.below(n));
    (a, b)
}

fn rows_swapped(random: &mut Random) -> (Vec<u32>, Vec<u32>) {
    let n = even(random);
    let a = random.tensor(n);
    let (i, j) = (random.below(n / COLUMNS), random.below(n / COLUMNS));
    let mut b = a.clone();
    for c in 0..COLUMNS {
        b.swap(i * COLUMNS + c, j * COLUMNS + c);
    }
    (a, b)
}

fn flipped(random: &mut Random) -> (Vec<u32>, Vec<u32>) {
    let n = even(random);
    let a = random.tensor(n);
    let b = a.iter().rev().copied().collect();
    (a, b)
}

fn transposed(random: &mut Random) -> (Vec<u32>, Vec<u32>) {
    let n = even(random);
    let a = random.tensor(n);
    let rows = n / COLUMNS;
    let b = (0..n).map(|k| a[(k % rows) * COLUMNS + k / rows]).collect();
    (a, b)
}

fn same_bit_in_two_words(random: &mut Random) -> (Vec<u32>, Vec<u32>) {
    let n = even(random);
    let a = random.tensor(n);
    let bit = 1u32 << random.below(32);
    let i = random.below(n);
    let j = (i + 1 + random.below(n - 1)) % n;
    let mut b = a.clone();
    b[i] ^= bit;
    b[j] ^= bit;
    (a, b)
}

fn two_signs(random: &mut Random) -> (Vec<u32>, Vec<u32>) {
    let n = even(random);
    let a = random.tensor(n);
    let i = random.below(n);
    let j = (i + 1 + random.below(n - 1)) % n;
    let mut b = a.clone();
    b[i] ^= 1 << 31;
    b[j] ^= 1 << 31;
    (a, b)
}

fn all_signs(random: &mut Random) -> (Vec<u32>, Vec<u32>) {
    let n = even(random);
    let a = random.tensor(n);
    let b = a.iter().map(|w| w ^ (1 << 31)).collect();
    (a, b)
}

fn halves_changed_alike(random: &mut Random) -> (Vec<u32>, Vec<u32>) {
    let n = even(random);
    let half = random.tensor(n / 2);
    let mut changed = half.clone();
    let i = random.below(n / 2);
    changed[i] = random.float();
    (
        [half.clone(), half].concat(),
        [changed.clone(), changed].concat(),
    )
}

fn one_bit(random: &mut Random) -> (Vec<u32>, Vec<u32>) {
    let n = even(random);
    let a = random.tensor(n);
    let mut b = a.clone();
    b[random.below(n)] ^= 1 << random.below(32);
    (a, b)
}

fn negative_zeros(random: &mut Random) -> (Vec<u32>, Vec<u32>) {
    let n = even(random);
    (vec![0; n], vec![1 << 31; n])
}

fn shifted(random: &mut Random) -> (Vec<u32>, Vec<u32>) {
    let n = even(random);
    let a = random.tensor(n);
    let mut b = a.clone();
    b.rotate_right(1);
    (a, b)
}

const CHANGES: [(&str, Change); 12] = [
    ("constant tensor, other constant", constant),
    ("two words swapped", words_swapped),
    ("two rows swapped", rows_swapped),
    ("reversed", flipped),
    ("transposed", transposed),
    ("same bit flipped in two words", same_bit_in_two_words),
    ("signs of two floats flipped", two_signs),
    ("every sign flipped", all_signs),
    ("both equal halves changed alike", halves_changed_alike),
    ("one bit flipped", one_bit),
    ("-0.0 for 0.0 everywhere", negative_zeros),
    ("rotated by one word", shifted),
];

/// Bits flipped in two words of a tensor at once.
const FLIPS: [(&str, u32); 6] = [
    ("float32 sign", 0x8000_0000),
    ("both bf16 signs", 0x8000_8000),
    ("four 8-bit signs", 0x8080_8080),
    ("all bits", 0xFFFF_FFFF),
    ("lowest bit", 1),
    ("lowest exponent bit", 0x0080_0000),
];

/// log2 of the rate at which two words, with the same bits flipped, change the value alike.
fn pair_rate(mix: Mix, flip: u32, mut word: impl FnMut() -> u32, samples: u64) -> f64 {
    let mut changes: Vec<u32> = (0..samples)
        .map(|index| {
            let w = word();
            mix(w, index) ^ mix(w ^ flip, index)
        })
        .collect();
    changes.sort_unstable();
    let equal = changes.chunk_by(|a, b| a == b).map(|run| run.len() as u64);
    let pairs: u64 = equal.map(|n| n * (n - 1) / 2).sum();
    (pairs as f64 / (samples * (samples - 1) / 2) as f64).log2()
}

fn print_head(columns: &str) {
    let names = CANDIDATES.map(|(name, _)| name).join(" | ");
    println!("| {columns} | {names} |");
    println!(
        "|{}",
        "---|".repeat(columns.matches('|').count() + 1 + CANDIDATES.len())
    );
}

fn main() {
    let trials: u32 = std::env::args()
        .nth(1)
        .map_or(20_000, |n| n.parse().expect("a trial count"));
    println!("unseen changes of {trials}\n");
    print_head("change");
    for (kind, change) in CHANGES {
        let mut misses = [0u32; CANDIDATES.len()];
        let mut random = Random(2026);
        for _ in 0..trials {
            let (a, b) = loop {
                let (a, b) = change(&mut random);
                // Equal by chance (a word swapped with itself): draw again.
                if a != b {
                    break (a, b);
                }
            };
            for (miss, (_, mix)) in misses.iter_mut().zip(CANDIDATES) {
                *miss += u32::from(value(mix, &a) == value(mix, &b));
            }
        }
        println!("| {kind} | {} |", misses.map(|m| m.to_string()).join(" | "));
    }

    let samples = 1 << 20;
    println!("\nlog2 of the rate at which the same flip in two words is unseen\n");
    print_head("words | flipped in both");
    for (words, constant) in [("normal float32", false), ("one constant", true)] {
        let rate = |mix, flip| {
            let mut random = Random(7);
            let fixed = random.float();
            pair_rate(
                mix,
                flip,
                || if constant { fixed } else { random.float() },
                samples,
            )
        };
        for (name, flip) in FLIPS {
            let rates = CANDIDATES.map(|(_, mix)| format!("{:.1}", rate(mix, flip)));
            println!("| {words} | {name} | {} |", rates.join(" | "));
        }
        let worst = CANDIDATES.map(|(_, mix)| {
            let rates = (0..32).map(|bit| rate(mix, 1 << bit));
            format!("{:.1}", rates.fold(f64::NEG_INFINITY, f64::max))
        });
        println!("| {words} | worst single bit | {} |", worst.join(" | "));
    }
}
