//! Protocol buffer wire format, as much as a trace needs.

/// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;

/// A message under construction.
#[derive(Debug, Default)]
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// The encoded fields.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets the fields, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// An unsigned integer, enumeration or truth value.
    pub fn uint(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    /// A signed integer of type `int64`.
    pub fn int(&mut self, field: u32, value: i64) {
        self.uint(field, value.cast_unsigned());
    }

    /// An integer of type `fixed64`.
    pub fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A floating-point number of type `double`.
    pub fn double(&mut self, field: u32, value: f64) {
        self.fixed64(field, value.to_bits());
    }

    /// A string.
    pub fn text(&mut self, field: u32, value: &str) {
        self.tag(field, LENGTH_DELIMITED);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value.as_bytes());
    }

    /// A message inside this one that has two integers, each given by field and value. The same as
    /// [`Self::nested`] with two calls of [`Self::uint`], put together apart and copied once.
    pub fn nested_uints(&mut self, field: u32, entries: [(u32, u64); 2]) {
        let mut content = Short::default();
        for (field, value) in entries {
            content.varint(u64::from(field << 3 | VARINT));
            content.varint(value);
        }
        self.tag(field, LENGTH_DELIMITED);
        // Two tags of at most 5 bytes and two values of at most 10: one byte holds the length.
        self.bytes.push(content.size as u8);
        self.bytes.extend_from_slice(&content.bytes[..content.size]);
    }

    /// A message inside this one, which `fill` writes.
    pub fn nested<T>(&mut self, field: u32, fill: impl FnOnce(&mut Self) -> T) -> T {
        self.tag(field, LENGTH_DELIMITED);
        // Most messages are short: reserve one byte for the length, make room if it needs more.
        let length_at = self.bytes.len();
        self.bytes.push(0);
        let result = fill(self);
        let length = (self.bytes.len() - length_at - 1) as u64;
        let (encoded, size) = encode_varint(length);
        if size > 1 {
            let content = length_at + 1..self.bytes.len();
            self.bytes.resize(self.bytes.len() + size - 1, 0);
            self.bytes.copy_within(content, length_at + size);
        }
        self.bytes[length_at..length_at + size].copy_from_slice(&encoded[..size]);
        result
    }

    /// Fields that are encoded already.
    pub fn append(&mut self, fields: &Self) {
        self.bytes.extend_from_slice(&fields.bytes);
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    fn varint(&mut self, value: u64) {
        if value < 0x80 {
            // Tags, lengths and numbers of texts are mostly this short.
            self.bytes.push(value as u8);
            return;
        }
        let (encoded, size) = encode_varint(value);
        self.bytes.extend_from_slice(&encoded[..size]);
    }
}

/// A few varints in one place.
#[derive(Default)]
struct Short {
    bytes: [u8; 32],
    size: usize,
}

impl Short {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes[self.size] = value as u8 | 0x80;
            self.size += 1;
            value >>= 7;
        }
        self.bytes[self.size] = value as u8;
        self.size += 1;
    }
}

/// The bytes of a varint and their number.
fn encode_varint(mut value: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let mut size = 0;
    loop {
        let low = (value & 0x7F) as u8;
        value >>= 7;
        bytes[size] = if value == 0 { low } else { low | 0x80 };
        size += 1;
        if value == 0 {
            return (bytes, size);
        }
    }
}
