//! Parquet files whose pages are encoded here, for the tables that have the most rows.
//!
//! The `parquet` crate's encoder is general: it looks up every text, makes a level of every list
//! element and reserves fresh memory for every page. A capture's columns need none of that: names
//! have numbers already, all lists of a table have one length, and memory serves again from page
//! to page. The schema and the footer are still the crate's.
//!
//! A column gathers the rows of a page ([`numbers`], [`names`], [`signatures`]); its full pages
//! wait in a [`chunk`] until the row group is complete and goes into the [`file`]. [`table`] is what
//! all tables of such columns have in common.

pub mod chunk;
mod delta;
pub mod file;
mod header;
mod hybrid;
mod levels;
pub mod names;
pub mod numbers;
pub mod signatures;
pub mod table;

#[cfg(test)]
mod tests;

/// Rows of a page at most, as the `parquet` crate has it.
pub const PAGE_ROWS: usize = 20_000;

/// Appends an unsigned number in groups of seven bits, as Thrift and Parquet's encodings have it.
fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number, whose sign becomes the lowest bit.
fn zigzag(value: i64, out: &mut Vec<u8>) {
    varint((value << 1 ^ value >> 63) as u64, out);
}
