//! Protocol buffer wire format, as much as a trace needs.
//!
//! A message is written from front to back into one buffer. Tags and numbers are stores of a
//! constant 16 bytes of which the message keeps as many as they have: a copy of exactly those
//! bytes would cost a call, a loop over them a branch that the processor guesses wrong. What a
//! message begins with again and again ([`Head`]) is put together once.

/// Most bytes that are stored at once.
const SHORT_BYTES: usize = 16;
/// The bit that says that another byte of a varint follows, in each of eight bytes.
const CONTINUED: u64 = 0x8080_8080_8080_8080;

/// How a value is encoded; the low bits of its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireType {
    /// A varint.
    Varint = 0,
    /// Eight bytes.
    Fixed64 = 1,
    /// A varint with the length in bytes of what follows it.
    LengthDelimited = 2,
}

/// A few encoded bytes, the first one lowest. A number and not an array: it stays in registers,
/// while an array that is written by parts and read as a whole makes the processor wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Short {
    bits: u128,
    size: usize,
}

/// The begin of messages that differ only in their last number.
pub type Head = Short;

impl Short {
    /// A varint.
    #[inline(always)]
    pub fn varint(value: u64) -> Self {
        let size = varint_size(value);
        if size <= 8 {
            let bits = u128::from(short_varint(value, size));
            return Self { bits, size };
        }
        let low = short_varint(value & (u64::MAX >> 8), 8) | CONTINUED;
        let high = value >> 56 & 0x7F | value >> 63 << 8 | u64::from(size == 10) << 7;
        let bits = u128::from(low) | u128::from(high) << 64;
        Self { bits, size }
    }

    /// Eight bytes.
    #[inline(always)]
    pub fn fixed64(value: u64) -> Self {
        let bits = u128::from(value);
        Self { bits, size: 8 }
    }

    /// An integer `field`, then the tag of another one: for messages of two numbers. The integer
    /// must be less than 2^56.
    pub fn head(field: u32, value: u64, next: u32, wire_type: WireType) -> Head {
        tag(field, WireType::Varint)
            .then(Self::varint(value))
            .then(tag(next, wire_type))
    }

    /// These bytes and `other`'s, which must be 16 at most.
    #[inline(always)]
    fn then(self, other: Self) -> Self {
        let size = self.size + other.size;
        debug_assert!(size <= SHORT_BYTES);
        let bits = self.bits | other.bits << (8 * self.size);
        Self { bits, size }
    }
}

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
    #[inline(always)]
    pub fn uint(&mut self, field: u32, value: u64) {
        self.value(field, WireType::Varint, Short::varint(value));
    }

    /// An integer of type `fixed64`.
    #[inline(always)]
    pub fn fixed64(&mut self, field: u32, value: u64) {
        self.value(field, WireType::Fixed64, Short::fixed64(value));
    }

    /// A string.
    pub fn text(&mut self, field: u32, value: &str) {
        let length = Short::varint(value.len() as u64);
        self.value(field, WireType::LengthDelimited, length);
        self.bytes.extend_from_slice(value.as_bytes());
    }

    /// A message inside this one: `head`, then the value whose tag `head` ends with.
    #[inline(always)]
    pub fn headed(&mut self, field: u32, head: Head, value: Short) {
        // Two short parts: one byte holds the length.
        let length = Short {
            bits: (head.size + value.size) as u128,
            size: 1,
        };
        let frame = tag(field, WireType::LengthDelimited).then(length);
        self.put(frame.then(head));
        self.put(value);
    }

    /// A message inside this one, which `fill` writes.
    #[inline(always)]
    pub fn nested<T>(&mut self, field: u32, fill: impl FnOnce(&mut Self) -> T) -> T {
        self.put(tag(field, WireType::LengthDelimited));
        // Most messages are short: reserve one byte for the length, make room if it needs more.
        let length_at = self.bytes.len();
        let begin = length_at + 1;
        self.bytes.push(0);
        let result = fill(self);
        let end = self.bytes.len();
        let length = Short::varint((end - begin) as u64);
        if length.size > 1 {
            self.bytes.resize(end + length.size - 1, 0);
            self.bytes.copy_within(begin..end, length_at + length.size);
        }
        let encoded = length.bits.to_le_bytes();
        self.bytes[length_at..length_at + length.size].copy_from_slice(&encoded[..length.size]);
        result
    }

    /// Fields that are encoded already.
    pub fn append(&mut self, fields: &Self) {
        self.bytes.extend_from_slice(&fields.bytes);
    }

    /// A value that is encoded already.
    #[inline(always)]
    pub fn value(&mut self, field: u32, wire_type: WireType, value: Short) {
        self.put(tag(field, wire_type));
        self.put(value);
    }

    #[inline(always)]
    fn put(&mut self, short: Short) {
        let end = self.bytes.len() + short.size;
        self.bytes.extend_from_slice(&short.bits.to_le_bytes());
        self.bytes.truncate(end);
    }
}

#[inline(always)]
fn tag(field: u32, wire_type: WireType) -> Short {
    Short::varint(u64::from(field << 3 | wire_type as u32))
}

/// How many bytes a varint takes: one for every seven bits.
#[inline(always)]
fn varint_size(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// The bytes of a varint of `size` bytes, at most 8.
#[inline(always)]
fn short_varint(value: u64, size: usize) -> u64 {
    // Moves seven bits into each byte: first halves apart, then quarters, then single groups.
    let halves = (value & 0x00FF_FFFF_F000_0000) << 4 | value & 0x0FFF_FFFF;
    let quarters = (halves & 0x0FFF_C000_0FFF_C000) << 2 | halves & 0x0000_3FFF_0000_3FFF;
    let groups = (quarters & 0x3F80_3F80_3F80_3F80) << 1 | quarters & 0x007F_007F_007F_007F;
    groups | CONTINUED & !(u64::MAX << (8 * (size - 1)))
}
