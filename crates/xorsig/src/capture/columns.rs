//! The columns of a section: plain arrays, each compressed on its own.
//!
//! A column is its stored length in bytes (u32), then that many bytes: the numbers of the rows in
//! little-endian order, or the same as one LZ4 block where that is shorter. How many bytes the
//! numbers take follows from the rows, so a reader knows the size before it reads, and a length
//! equal to it means that nothing is compressed.

use lz4_flex::block::{compress_into, get_maximum_output_size};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::lz4;

/// An LZ4 block cannot expand more than this many times.
const MAX_RATIO: usize = 255;

/// A number of a column.
pub trait Number: Copy + Default + FromBytes + IntoBytes + Immutable {
    /// To little-endian order, and back.
    fn little_endian(self) -> Self;
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl Number for $number {
            fn little_endian(self) -> Self {
                self.to_le()
            }
        })*
    };
}
numbers!(u8, u32, u64, i32, i64);

/// Appends columns to a section.
#[derive(Debug)]
pub struct ColumnWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> ColumnWriter<'a> {
    /// A writer at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// A column of numbers.
    pub fn numbers<T: Number>(&mut self, values: impl Iterator<Item = T>) {
        let values: Vec<T> = values.map(Number::little_endian).collect();
        self.bytes(values.as_bytes());
    }

    /// A column of bytes.
    pub fn bytes(&mut self, raw: &[u8]) {
        let length_at = self.out.len();
        let begin = length_at + 4;
        self.out
            .resize(begin + get_maximum_output_size(raw.len()), 0);
        let size = match compress_into(raw, &mut self.out[begin..]) {
            Ok(size) if size < raw.len() => size,
            _ => {
                self.out[begin..begin + raw.len()].copy_from_slice(raw);
                raw.len()
            }
        };
        self.out.truncate(begin + size);
        // A batch is cut long before a column has 2^32 bytes.
        self.out[length_at..begin].copy_from_slice(&(size as u32).to_le_bytes());
    }

    /// Two columns: the length of each text in bytes, then the texts.
    pub fn texts(&mut self, texts: &[String]) {
        self.numbers(texts.iter().map(|text| text.len() as u32));
        self.bytes(texts.concat().as_bytes());
    }

    /// Two columns: the number of items of each row, then the items.
    pub fn lists<'b>(&mut self, rows: impl Iterator<Item = &'b [i64]> + Clone) {
        self.numbers(rows.clone().map(|row| row.len() as u32));
        self.numbers(rows.flatten().copied());
    }
}

/// Takes the columns of a section, each size checked before memory is reserved for it.
#[derive(Debug)]
pub struct ColumnReader<'a> {
    rest: &'a [u8],
}

impl<'a> ColumnReader<'a> {
    /// A reader at the begin of `section`.
    pub fn new(section: &'a [u8]) -> Self {
        Self { rest: section }
    }

    /// Fills `out` with a column of `count` numbers.
    ///
    /// # Errors
    /// The reason, when the column is anything else.
    pub fn numbers<T: Number>(&mut self, count: usize, out: &mut Vec<T>) -> Result<(), String> {
        let raw = count
            .checked_mul(size_of::<T>())
            .ok_or("a column's size overflows")?;
        let stored = self.stored()?;
        if raw > stored.len() && raw > stored.len().saturating_mul(MAX_RATIO) {
            return Err(format!("{} bytes cannot expand to {raw}", stored.len()));
        }
        // What is there already is overwritten: clearing it first would write it twice.
        out.resize(count, T::default());
        let bytes = out.as_mut_slice().as_mut_bytes();
        if stored.len() == raw {
            bytes.copy_from_slice(stored);
        } else {
            lz4::expand(stored, bytes).ok_or("a column is not what its compressor made")?;
        }
        if cfg!(target_endian = "big") {
            out.iter_mut()
                .for_each(|value| *value = value.little_endian());
        }
        Ok(())
    }

    /// A column of numbers of its own.
    ///
    /// # Errors
    /// As [`Self::numbers`].
    pub fn column<T: Number>(&mut self, count: usize) -> Result<Vec<T>, String> {
        let mut values = Vec::new();
        self.numbers(count, &mut values)?;
        Ok(values)
    }

    /// The texts of `count` rows.
    ///
    /// # Errors
    /// The reason, when the two columns are anything else.
    pub fn texts(&mut self, count: usize) -> Result<Vec<String>, String> {
        let lengths: Vec<u32> = self.column(count)?;
        let all: Vec<u8> = self.column(total(&lengths)?)?;
        let mut rest = std::str::from_utf8(&all).map_err(|_| "a text is not UTF-8")?;
        let mut texts = Vec::with_capacity(count);
        for length in lengths {
            let (text, after) = rest
                .split_at_checked(length as usize)
                .ok_or("a text ends inside a character")?;
            texts.push(text.to_owned());
            rest = after;
        }
        Ok(texts)
    }

    /// The lists of `count` rows.
    ///
    /// # Errors
    /// The reason, when the two columns are anything else.
    pub fn lists(&mut self, count: usize) -> Result<Vec<Vec<i64>>, String> {
        let lengths: Vec<u32> = self.column(count)?;
        let all: Vec<i64> = self.column(total(&lengths)?)?;
        let mut rest = all.as_slice();
        let mut lists = Vec::with_capacity(count);
        for length in lengths {
            // The lengths add up to the number of items.
            let (list, after) = rest.split_at(length as usize);
            lists.push(list.to_vec());
            rest = after;
        }
        Ok(lists)
    }

    /// Whether every byte of the section was read.
    ///
    /// # Errors
    /// The reason, when some are left.
    pub fn finish(self) -> Result<(), String> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(format!("{left} bytes follow its last column")),
        }
    }

    /// The stored bytes of the next column.
    fn stored(&mut self) -> Result<&'a [u8], String> {
        let cut = || "it ends inside a column".to_owned();
        let (length, rest) = self.rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (stored, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
        self.rest = rest;
        Ok(stored)
    }
}

/// The sum of lengths; a column of that size is checked against the bytes that are there.
fn total(lengths: &[u32]) -> Result<usize, String> {
    let total: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
    usize::try_from(total).map_err(|_| "a column's size overflows".into())
}
