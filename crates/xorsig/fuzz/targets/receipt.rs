//! Searches for bytes on which [`xorsig_fuzz::receipt`] fails.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| xorsig_fuzz::receipt(bytes));
