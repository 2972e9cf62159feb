//! The floor that fingerprints are measured against: a loop that only reads.
//!
//! It XORs whole vectors into eight accumulators and returns nothing of meaning: no regions, no
//! tail, no alignment. A fingerprint cannot be faster than this on the same bytes.

/// Reads `data` up to the last whole block of 512 bytes.
pub fn read(data: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the feature.
            return unsafe { read_avx512(data) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the feature.
            return unsafe { read_avx2(data) };
        }
    }
    let words = data.as_chunks::<8>().0;
    words
        .iter()
        .fold(0, |acc, word| acc ^ u64::from_le_bytes(*word))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn read_avx512(data: &[u8]) -> u64 {
    use std::arch::x86_64::*;
    let mut sums = [_mm512_setzero_si512(); 8];
    for block in data.as_chunks::<512>().0 {
        for (lane, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the block has 8 vectors of 64 bytes, and the load has no alignment.
            let vector = unsafe { _mm512_loadu_si512(block.as_ptr().add(64 * lane).cast()) };
            *sum = _mm512_xor_si512(*sum, vector);
        }
    }
    let sum = sums
        .into_iter()
        .fold(_mm512_setzero_si512(), |a, b| _mm512_xor_si512(a, b));
    _mm512_reduce_add_epi64(sum) as u64
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn read_avx2(data: &[u8]) -> u64 {
    use std::arch::x86_64::*;
    let mut sums = [_mm256_setzero_si256(); 8];
    for block in data.as_chunks::<256>().0 {
        for (lane, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the block has 8 vectors of 32 bytes, and the load has no alignment.
            let vector = unsafe { _mm256_loadu_si256(block.as_ptr().add(32 * lane).cast()) };
            *sum = _mm256_xor_si256(*sum, vector);
        }
    }
    let sum = sums
        .into_iter()
        .fold(_mm256_setzero_si256(), |a, b| _mm256_xor_si256(a, b));
    _mm256_extract_epi64::<0>(sum) as u64
}
