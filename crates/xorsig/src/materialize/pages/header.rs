//! Headers of pages: Thrift's compact protocol, whose integers follow the byte of their field.

use parquet::basic::Encoding;
use parquet::errors::ParquetError;

use super::zigzag;

/// A field with the next number that holds an i32, or a structure whose number is as many higher.
const INTEGER: u8 = 0x15;
const STRUCTURE: u8 = 0x0c;
const END: u8 = 0;

/// What a page is.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Values, behind their levels.
    Data,
    /// What the indices of the pages after it mean.
    Dictionary,
}

/// What a page's header says.
pub struct Header {
    /// What the page is.
    pub kind: Kind,
    /// Values, nulls included.
    pub values: usize,
    /// How they are encoded.
    pub encoding: Encoding,
    /// Bytes of the page.
    pub raw_bytes: usize,
    /// Bytes that follow the header.
    pub stored_bytes: usize,
}

impl Header {
    /// Appends the header.
    ///
    /// # Errors
    /// [`ParquetError`] if the page is larger than the format allows.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), ParquetError> {
        let (kind, skipped) = match self.kind {
            Kind::Data => (0, 2),
            Kind::Dictionary => (2, 4),
        };
        integer(kind, out);
        integer(size(self.raw_bytes)?, out);
        integer(size(self.stored_bytes)?, out);
        out.push(skipped << 4 | STRUCTURE);
        integer(size(self.values)?, out);
        integer(self.encoding as i32, out);
        if let Kind::Data = self.kind {
            // Definition and repetition levels.
            integer(Encoding::RLE as i32, out);
            integer(Encoding::RLE as i32, out);
        }
        out.extend_from_slice(&[END, END]);
        Ok(())
    }
}

fn integer(value: i32, out: &mut Vec<u8>) {
    out.push(INTEGER);
    zigzag(value.into(), out);
}

fn size(value: usize) -> Result<i32, ParquetError> {
    let too_large = |_| ParquetError::General(format!("a page of {value} does not fit"));
    i32::try_from(value).map_err(too_large)
}
