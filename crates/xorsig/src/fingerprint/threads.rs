//! How many threads share a large input, and how they share it.
//!
//! A fingerprint is an XOR of what its pieces contribute, so pieces may be summed anywhere; the
//! values do not depend on how many threads there are.

use std::num::NonZero;
use std::sync::OnceLock;

/// Sets the number of threads.
pub const THREADS_VARIABLE: &str = "XORSIG_THREADS";
/// Most threads that are used unless [`THREADS_VARIABLE`] or an argument says otherwise: a few
/// threads fill a memory bus, and the others belong to the training.
const MOST: usize = 4;
/// Fewest bytes for each thread. Starting one takes about 30 µs, in which a thread reads about
/// 1 MiB from memory; with this size it is a tenth of the work.
const PART_BYTES: usize = 8 << 20;
/// Parts end at multiples of this, so that they share no cache line (and no word).
const PART_ALIGN: usize = 4096;

/// The number of threads for a large input, read once.
///
/// `XORSIG_THREADS`, else the smallest of `OMP_NUM_THREADS` (which launchers set to 1 where
/// several ranks share a machine), the processors that this process may run on, and 4.
/// Something that is not a positive number counts as not set.
pub fn default_threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| {
        let number = |name| {
            let value: usize = std::env::var(name).ok()?.trim().parse().ok()?;
            (value > 0).then_some(value)
        };
        number(THREADS_VARIABLE).unwrap_or_else(|| {
            let usable = std::thread::available_parallelism().map_or(1, NonZero::get);
            number("OMP_NUM_THREADS")
                .unwrap_or(usable)
                .min(usable)
                .min(MOST)
        })
    })
}

/// Into how many parts an input is split.
pub(super) fn parts(nbytes: usize, threads: usize) -> usize {
    threads.min(nbytes / PART_BYTES).max(1)
}

/// Calls `work(offset, part)` for the parts of `data`, each on a thread, and `merge` with each
/// result, on this thread.
pub(super) fn share<T: Send>(
    data: &[u8],
    threads: usize,
    work: impl Fn(u64, &[u8]) -> T + Sync,
    mut merge: impl FnMut(T),
) {
    let count = parts(data.len(), threads);
    if count == 1 {
        return merge(work(0, data));
    }
    let size = data.len().div_ceil(count).next_multiple_of(PART_ALIGN);
    let (own, others) = data.split_at(size);
    let work = &work;
    std::thread::scope(|scope| {
        let others = others.chunks(size).enumerate().map(|(i, part)| {
            let run = move || work(((i + 1) * size) as u64, part);
            let thread = std::thread::Builder::new().name("xorsig-read".into());
            // Where no further thread can be had, the part is read here, below.
            thread.spawn_scoped(scope, run).map_err(|_| run)
        });
        let others: Vec<_> = others.collect();
        merge(work(0, own));
        for part in others {
            merge(match part {
                Ok(handle) => handle
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(run) => run(),
            });
        }
    });
}
