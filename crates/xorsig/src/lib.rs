//! Tensor fingerprints, capture files, tables and trace reports.
//!
//! - [`fingerprint`]: `flat-u32-le-v1` and `flat-u32-mix-v1` over dense or strided memory.
//! - [`capture`]: the record format, its writer thread, its reader and its receipts.
//! - [`materialize`]: verified batches to Parquet tables of one rank.
//! - [`perfetto`]: an encoder for flat Perfetto reports.
//!
//! [`materialize`] and [`perfetto`] are the feature `tables`, which is on by default.
//! The feature `python` adds `dlpack`, which borrows torch tensors, and the extension module
//! `xorsig._xorsig`.

#![deny(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(clippy::undocumented_unsafe_blocks)]

pub mod capture;
#[cfg(feature = "python")]
pub mod dlpack;
pub mod fingerprint;
#[cfg(feature = "tables")]
pub mod materialize;
#[cfg(feature = "tables")]
pub mod perfetto;

#[cfg(feature = "python")]
mod python;
