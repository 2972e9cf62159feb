//! Which instruction set does the work.
//!
//! [`super::dense`] is written once over a vector register; this module compiles it for each
//! instruction set. An [`Avx2`] or [`Avx512`] value exists only on a processor that has the
//! features, which is what the calls into compiled code rest on.

use std::sync::OnceLock;

use super::columns::{self, Block};
use super::cuts::Cuts;
use super::kernel::{self, Values};
use super::regions::Regions;
use super::{dense, small};

/// Names the instruction set to use instead of the fastest one.
pub const BACKEND_VARIABLE: &str = "XORSIG_BACKEND";

/// An instruction set that the code is compiled for and this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Plain Rust; the oracle of the others.
    Portable,
    /// 128-bit vectors of aarch64.
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon(Neon),
    /// 256-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// 512-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

/// The environment asks for a backend that there is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendError {
    /// What the variable holds.
    pub requested: String,
}

impl std::fmt::Display for BackendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = Level::available()
            .iter()
            .map(|level| level.name())
            .collect();
        let (requested, names) = (&self.requested, names.join(", "));
        write!(
            f,
            "{BACKEND_VARIABLE} is {requested:?}; this machine has: {names}"
        )
    }
}

impl std::error::Error for BackendError {}

impl Level {
    /// Every level that this processor has, slowest first.
    pub fn available() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        let vector = [Avx2::new().map(Self::Avx2), Avx512::new().map(Self::Avx512)];
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        let vector = [Neon::new().map(Self::Neon)];
        #[cfg(not(any(
            target_arch = "x86_64",
            all(target_arch = "aarch64", target_endian = "little")
        )))]
        let vector: [Option<Self>; 0] = [];
        std::iter::once(Self::Portable)
            .chain(vector.into_iter().flatten())
            .collect()
    }

    /// The name by which [`BACKEND_VARIABLE`] selects the level.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon(_) => "neon",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "avx512",
        }
    }

    /// The level that `XORSIG_BACKEND` names, else the fastest that this processor has.
    ///
    /// # Errors
    /// The variable names a level that this processor does not have, or none at all.
    pub fn select() -> Result<Self, BackendError> {
        let available = Self::available();
        let requested = std::env::var_os(BACKEND_VARIABLE).filter(|name| !name.is_empty());
        let found = match &requested {
            None => available.last(),
            Some(name) => available.iter().find(|level| *name == *level.name()),
        };
        found.copied().ok_or_else(|| BackendError {
            requested: requested.unwrap_or_default().to_string_lossy().into_owned(),
        })
    }

    /// [`Self::select`], once for the process.
    ///
    /// # Panics
    /// As [`Self::select`] fails. The Python package checks this when it is imported.
    pub fn detect() -> Self {
        static DETECTED: OnceLock<Level> = OnceLock::new();
        *DETECTED.get_or_init(|| Self::select().unwrap_or_else(|error| panic!("{error}")))
    }

    /// Numbers of lanes that [`Self::columns`] takes, most first.
    pub(super) fn column_lanes(self) -> [usize; 2] {
        match self {
            Self::Portable => [columns::MOST_LANES, 16],
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon(_) => columns::lanes_of::<super::neon::Neon>(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => columns::lanes_of::<super::avx2::Ymm>(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => columns::lanes_of::<super::avx512::Zmm>(),
        }
    }

    /// XOR of the words of `data`; a last, partial word is padded with zero bytes.
    pub fn xor(self, data: &[u8]) -> u32 {
        let mut out = [0];
        self.xor_parts(data, Cuts::none(data.len()), &mut out);
        out[0]
    }

    /// Both values of the words of `data`, whose first word has global index `first`.
    pub fn both(self, data: &[u8], first: u64) -> Values {
        let mut out = [Values::default()];
        self.both_parts(data, first, Cuts::none(data.len()), &mut out);
        out[0]
    }
}

/// Defines [`Level`]'s methods that have one body for each instruction set.
macro_rules! dispatch {
    ($(fn $name:ident(self $(, $arg:ident: $type:ty)*) { $portable:expr })+) => {
        impl Level {
            $(pub(super) fn $name(self $(, $arg: $type)*) {
                match self {
                    Self::Portable => $portable,
                    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
                    Self::Neon(proof) => proof.$name($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    Self::Avx2(proof) => proof.$name($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    Self::Avx512(proof) => proof.$name($($arg),*),
                }
            })+
        }
    };
}

dispatch! {
    fn xor_parts(self, data: &[u8], parts: Cuts, out: &mut [u32]) {
        for (part, out) in parts.zip(out) {
            *out = kernel::xor(&data[part]);
        }
    }
    fn both_parts(self, data: &[u8], first: u64, parts: Cuts, out: &mut [Values]) {
        for (part, out) in parts.zip(out) {
            let index = first + part.start as u64 / 4;
            *out = kernel::both(&data[part], index);
        }
    }
    fn small_xor(self, data: &[u8], regions: &Regions, out: &mut [u32]) {
        for (region, out) in out.iter_mut().enumerate() {
            *out = kernel::xor(&data[regions.byte_range_in_memory(region)]);
        }
    }
    fn columns(self, block: &Block, out: &mut [Values]) {
        columns::sum_portable(block, out)
    }
    fn small_both(self, data: &[u8], regions: &Regions, out: &mut [Values]) {
        for (region, out) in out.iter_mut().enumerate() {
            let piece = &data[regions.byte_range_in_memory(region)];
            *out = kernel::both(piece, regions.words(region).start);
        }
    }
}

/// Defines the proof type of one instruction set and the walk compiled for it.
macro_rules! level {
    (
        $(#[$doc:meta])* $name:ident, $lanes:ty, if $detect:expr,
        #[$enable:meta]
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(());

        impl $name {
            /// The proof, if this processor has the features.
            pub fn new() -> Option<Self> {
                $detect.then_some(Self(()))
            }

            level!(#[$enable] fn xor_parts(data: &[u8], parts: Cuts, out: &mut [u32]) {
                // SAFETY: this function is compiled for the instruction set of the lanes.
                unsafe { dense::xor_parts::<$lanes>(data, parts, out) }
            });
            level!(#[$enable] fn both_parts(
                data: &[u8], first: u64, parts: Cuts, out: &mut [Values]
            ) {
                // SAFETY: as above.
                unsafe { dense::both_parts::<$lanes>(data, first, parts, out) }
            });
            level!(#[$enable] fn columns(block: &Block, out: &mut [Values]) {
                // SAFETY: as above.
                unsafe { columns::sum::<$lanes>(block, out) }
            });
            level!(#[$enable] fn small_xor(data: &[u8], regions: &Regions, out: &mut [u32]) {
                // SAFETY: as above.
                unsafe { small::xor::<$lanes>(data, regions, out) }
            });
            level!(#[$enable] fn small_both(
                data: &[u8], regions: &Regions, out: &mut [Values]
            ) {
                // SAFETY: as above.
                unsafe { small::both::<$lanes>(data, regions, out) }
            });
        }
    };
    (#[$enable:meta] fn $method:ident($($arg:ident: $type:ty),*) $body:block) => {
        fn $method(self, $($arg: $type),*) {
            #[$enable]
            fn compiled($($arg: $type),*) $body
            // SAFETY: `self` was made by `new`, which found every feature enabled here.
            unsafe { compiled($($arg),*) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
level! {
    /// Proof that the processor has AVX2 (and BMI2, for masks).
    Avx2, super::avx2::Ymm,
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2"),
    #[target_feature(enable = "avx2,bmi2")]
}
#[cfg(target_arch = "x86_64")]
level! {
    /// Proof that the processor has the AVX-512 subsets that the code uses, and BMI2 for masks.
    Avx512, super::avx512::Zmm,
    if is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("bmi2"),
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2")]
}
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
level! {
    /// Proof that the processor has NEON, as every aarch64 processor has.
    Neon, super::neon::Neon, if std::arch::is_aarch64_feature_detected!("neon"),
    #[target_feature(enable = "neon")]
}
