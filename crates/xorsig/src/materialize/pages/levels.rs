//! Levels: which rows are null, and where lists begin.

use parquet::schema::types::ColumnDescriptor;

use super::hybrid;

/// Definition levels of a column's next page, which a column without nulls does not write.
pub struct Definitions {
    nullable: bool,
    rows: usize,
    /// Rows that have a value.
    defined: usize,
    /// 1 where there is a value, of a nullable column; empty as long as all rows are the same.
    levels: Vec<u32>,
}

impl Definitions {
    /// No rows yet.
    pub fn new(column: &ColumnDescriptor) -> Self {
        Self {
            nullable: column.max_def_level() > 0,
            rows: 0,
            defined: 0,
            levels: Vec::new(),
        }
    }

    /// Whether the column has nulls.
    pub fn nullable(&self) -> bool {
        self.nullable
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Adds rows that are all defined, or all null.
    pub fn add(&mut self, rows: usize, defined: bool) {
        self.count(rows, if defined { rows } else { 0 });
        if self.mixed() {
            self.levels.resize(self.rows, u32::from(defined));
        }
    }

    /// Adds rows of a nullable column that are defined where they are not 0.
    pub fn extend(&mut self, rows: &[u32]) {
        let defined = rows.iter().map(|row| usize::from(*row != 0)).sum();
        self.count(rows.len(), defined);
        if self.mixed() {
            let levels = rows.iter().map(|row| u32::from(*row != 0));
            self.levels.extend(levels);
        }
    }

    /// Counts rows; writes out what was the same so far before what is not.
    fn count(&mut self, rows: usize, defined: usize) {
        let (rows_before, defined_before) = (self.rows, self.defined);
        self.rows += rows;
        self.defined += defined;
        if self.mixed() && self.levels.is_empty() {
            self.levels
                .resize(rows_before, u32::from(defined_before > 0));
        }
    }

    fn mixed(&self) -> bool {
        self.defined > 0 && self.defined < self.rows
    }

    /// Appends the levels to the page, and begins the next one. Returns the rows.
    pub fn end_page(&mut self, page: &mut Vec<u8>) -> usize {
        if self.mixed() {
            section(page, |page| hybrid::encode(&self.levels, 1, page));
        } else if self.nullable {
            let level = u32::from(self.defined > 0);
            section(page, |page| hybrid::run(level, self.rows, 1, page));
        }
        self.levels.clear();
        self.defined = 0;
        std::mem::take(&mut self.rows)
    }
}

/// Appends the repetition and the definition levels of lists that have `length` elements, 1 or
/// more, where they are `present`, and are null elsewhere. Returns how many levels that is.
pub fn lists(present: &[bool], length: usize, page: &mut Vec<u8>) -> usize {
    /// Levels of a null list and of an element.
    const NULL: u32 = 0;
    const ELEMENT: u32 = 2;
    if present.iter().all(|present| *present) {
        let count = present.len() * length;
        section(page, |page| equal_lists(length, count, page));
        section(page, |page| hybrid::run(ELEMENT, count, 2, page));
        return count;
    }
    let (mut repetitions, mut definitions) = (Vec::new(), Vec::new());
    for present in present {
        let (levels, definition) = if *present {
            (length, ELEMENT)
        } else {
            (1, NULL)
        };
        repetitions.extend((0..levels).map(|level| u32::from(level > 0)));
        definitions.resize(repetitions.len(), definition);
    }
    section(page, |page| hybrid::encode(&repetitions, 1, page));
    section(page, |page| hybrid::encode(&definitions, 2, page));
    definitions.len()
}

/// The most bytes that [`lists`] appends for so many levels: one bit and two bits of each, rounded
/// up to eight, behind two lengths and two headers of up to ten bytes.
pub fn most_bytes(levels: usize) -> usize {
    3 * levels.div_ceil(8) + 2 * (4 + 10)
}

/// Repetition levels of lists that all have `length` elements: bits that repeat with the lists,
/// and therefore bytes that repeat after `length` of them.
fn equal_lists(length: usize, count: usize, page: &mut Vec<u8>) {
    if length == 1 {
        return hybrid::run(0, count, 1, page);
    }
    let groups = count.div_ceil(8);
    hybrid::packed_header(groups, page);
    let byte = |index: usize| {
        let bits = (0..8).map(|bit| u8::from(!(8 * index + bit).is_multiple_of(length)) << bit);
        bits.sum::<u8>()
    };
    let begin = page.len();
    page.extend((0..length.min(groups)).map(byte));
    while page.len() - begin < groups {
        let so_far = page.len() - begin;
        page.extend_from_within(begin..begin + so_far.min(groups - so_far));
    }
}

/// Appends what `write` does behind its length in bytes.
fn section(page: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let begin = page.len();
    page.extend_from_slice(&[0; 4]);
    write(page);
    let bytes = (page.len() - begin - 4) as u32;
    page[begin..begin + 4].copy_from_slice(&bytes.to_le_bytes());
}
