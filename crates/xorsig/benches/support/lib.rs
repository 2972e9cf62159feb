//! What the benches share.

pub mod floor;
