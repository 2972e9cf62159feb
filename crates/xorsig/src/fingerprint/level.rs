//! Which instruction set runs the kernel.
//!
//! The kernel has one source ([`super::kernel`]); this module compiles it once per instruction
//! set. An [`Avx2`] or [`Avx512`] value exists only on a processor that has the features.

use std::sync::OnceLock;

use super::kernel::{self, Values};

/// An instruction set that the kernel is compiled for and this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What the target guarantees (SSE2 on x86-64, NEON on aarch64).
    Portable,
    /// 256-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// 512-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Level {
    /// Every level that this processor has, slowest first.
    pub fn available() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        let vector = [Avx2::new().map(Self::Avx2), Avx512::new().map(Self::Avx512)];
        #[cfg(not(target_arch = "x86_64"))]
        let vector: [Option<Self>; 0] = [];
        std::iter::once(Self::Portable)
            .chain(vector.into_iter().flatten())
            .collect()
    }

    /// The fastest level that this processor has.
    pub fn detect() -> Self {
        static DETECTED: OnceLock<Level> = OnceLock::new();
        *DETECTED.get_or_init(|| Self::available().pop().unwrap_or(Self::Portable))
    }

    /// XOR of the words of `data`; a last, partial word is padded with zero bytes.
    pub fn xor(self, data: &[u8]) -> u32 {
        match self {
            Self::Portable => kernel::xor(data),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(proof) => proof.xor(data),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(proof) => proof.xor(data),
        }
    }

    /// Both values of the words of `data`, whose first word has global index `first`.
    pub fn both(self, data: &[u8], first: u64) -> Values {
        match self {
            Self::Portable => kernel::both(data, first),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(proof) => proof.both(data, first),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(proof) => proof.both(data, first),
        }
    }
}

/// Defines the proof type of one instruction set and the kernel compiled for it.
macro_rules! x86_level {
    ($(#[$doc:meta])* $name:ident, $($feature:tt),+) => {
        $(#[$doc])*
        #[cfg(target_arch = "x86_64")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(());

        #[cfg(target_arch = "x86_64")]
        impl $name {
            /// The proof, if this processor has the features.
            pub fn new() -> Option<Self> {
                ($(is_x86_feature_detected!($feature))&&+).then_some(Self(()))
            }

            fn xor(self, data: &[u8]) -> u32 {
                $(#[target_feature(enable = $feature)])+
                fn compiled(data: &[u8]) -> u32 {
                    kernel::xor(data)
                }
                // SAFETY: `self` was made by `new`, which found every feature enabled here.
                unsafe { compiled(data) }
            }

            fn both(self, data: &[u8], first: u64) -> Values {
                $(#[target_feature(enable = $feature)])+
                fn compiled(data: &[u8], first: u64) -> Values {
                    kernel::both(data, first)
                }
                // SAFETY: `self` was made by `new`, which found every feature enabled here.
                unsafe { compiled(data, first) }
            }
        }
    };
}

x86_level! {
    /// Proof that the processor has AVX2.
    Avx2, "avx2"
}
x86_level! {
    /// Proof that the processor has the AVX-512 subsets that the kernel uses.
    Avx512, "avx512f", "avx512bw", "avx512vl"
}
