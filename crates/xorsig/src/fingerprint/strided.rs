//! Fingerprints of tensors in memory, dense or not, without a copy of the whole tensor.
//!
//! Logical row-major order decides a word's index; the walk goes through memory in whatever order
//! is near: long dense runs where they lie, columns as `columns.rs` says, and everything else
//! gathered, one block of at most [`BLOCK`] bytes at a time.

use super::columns::{Block, MOST_LANES, rows_of_lanes};
use super::gather::gather;
use super::kernel::Values;
use super::layout::{Layout, LayoutError};
use super::level::Level;
use super::regions::Regions;
use super::{Fingerprint, both_into, threads};

/// Bytes gathered before the kernel runs; fits a first-level cache beside what is read.
const BLOCK: usize = 16 * 1024;
/// Runs of at least this many dense bytes are read where they lie.
const DIRECT_RUN: usize = 512;

/// Both values of each region of the tensor at `address`; up to `threads` threads read it if it is
/// dense.
///
/// # Errors
/// [`LayoutError::Regions`] and [`LayoutError::NullAddress`].
///
/// # Safety
/// Every element that `layout` reaches from `address` is readable memory, and nothing writes to
/// it during the call in a way that the language forbids.
pub unsafe fn fingerprint(
    address: *const u8,
    layout: &Layout,
    regions: usize,
    level: Level,
    threads: usize,
) -> Result<Fingerprint, LayoutError> {
    let nbytes = layout.nbytes();
    let mut out = Fingerprint::new(nbytes as u64, regions, level).ok_or(LayoutError::Regions)?;
    if nbytes == 0 {
        return Ok(out);
    }
    if address.is_null() {
        return Err(LayoutError::NullAddress);
    }
    if layout.is_dense() {
        // SAFETY: the layout is dense, so its `nbytes` bytes from `address` are its elements.
        let bytes = unsafe { std::slice::from_raw_parts(address, nbytes) };
        out.add_all(bytes, threads);
        return Ok(out);
    }
    let walk = Walk { address, layout };
    // SAFETY: forwarded from this function's caller, in all three walks.
    unsafe {
        match walk.column_dim(level) {
            _ if walk.has_direct_runs() => walk.direct(&mut out),
            Some(dim) => walk.columns(dim, &mut out),
            None => walk.gathered(&mut out),
        }
    }
    Ok(out)
}

/// As [`fingerprint`], writing the values of the regions to `out`; without a detour where one thread
/// reads the tensor as it lies.
///
/// # Errors
/// As [`fingerprint`]; the number of values is that of the regions.
///
/// # Safety
/// As [`fingerprint`].
pub unsafe fn fingerprint_into(
    address: *const u8,
    layout: &Layout,
    level: Level,
    threads: usize,
    out: &mut [Values],
) -> Result<(), LayoutError> {
    let nbytes = layout.nbytes();
    if layout.is_dense() && nbytes > 0 && threads::parts(nbytes, threads) == 1 {
        let regions = Regions::new(nbytes as u64, out.len()).ok_or(LayoutError::Regions)?;
        if address.is_null() {
            return Err(LayoutError::NullAddress);
        }
        // SAFETY: the layout is dense, so its `nbytes` bytes from `address` are its elements.
        let bytes = unsafe { std::slice::from_raw_parts(address, nbytes) };
        both_into(level, bytes, &regions, out);
        return Ok(());
    }
    // SAFETY: forwarded.
    let found = unsafe { fingerprint(address, layout, out.len(), level, threads)? };
    out.copy_from_slice(found.values());
    Ok(())
}

/// One walk over a tensor that is not dense.
struct Walk<'a> {
    address: *const u8,
    layout: &'a Layout,
}

impl Walk<'_> {
    fn inner(&self) -> (usize, isize) {
        *self.layout.dims.last().unwrap_or(&(1, 0))
    }

    /// Whether innermost runs are dense, long, and made of whole words.
    fn has_direct_runs(&self) -> bool {
        let (len, step) = self.inner();
        let run = len * self.layout.itemsize;
        step == self.layout.itemsize as isize && run >= DIRECT_RUN && run.is_multiple_of(4)
    }

    /// A dimension with unit stride beside an innermost one without, if [`Self::columns`] can read
    /// it: its rows are made of whole words and fill a register.
    fn column_dim(&self, level: Level) -> Option<usize> {
        let (len, _) = self.inner();
        let itemsize = self.layout.itemsize;
        let outer = &self.layout.dims[..self.layout.dims.len().saturating_sub(1)];
        let found = outer
            .iter()
            .position(|&(_, step)| step == itemsize as isize)?;
        let [_, fewest] = level.column_lanes();
        let readable = matches!(itemsize, 1 | 2 | 4 | 8 | 16)
            && (len * itemsize).is_multiple_of(4)
            && outer[found].0 >= rows_of_lanes(fewest, itemsize);
        readable.then_some(found)
    }

    /// Calls `visit(pointer, logical byte offset)` for every index of the `outer` dimensions.
    fn each(&self, outer: &[(usize, isize, usize)], mut visit: impl FnMut(*const u8, usize)) {
        let mut index = vec![0usize; outer.len()];
        let (mut pointer, mut offset) = (self.address, 0);
        loop {
            visit(pointer, offset);
            let mut dim = outer.len();
            loop {
                if dim == 0 {
                    return;
                }
                dim -= 1;
                let (len, step, logical) = outer[dim];
                index[dim] += 1;
                pointer = pointer.wrapping_offset(step);
                offset += logical;
                if index[dim] < len {
                    break;
                }
                index[dim] = 0;
                pointer = pointer.wrapping_offset(-(step * len as isize));
                offset -= logical * len;
            }
        }
    }

    /// (length, distance in memory, distance in logical bytes) of every dimension.
    fn dims(&self) -> Vec<(usize, isize, usize)> {
        let mut logical = self.layout.itemsize;
        let mut dims: Vec<_> = self
            .layout
            .dims
            .iter()
            .rev()
            .map(|&(len, step)| {
                let dim = (len, step, logical);
                logical *= len;
                dim
            })
            .collect();
        dims.reverse();
        dims
    }

    /// Feeds each innermost run from where it lies.
    ///
    /// # Safety
    /// As for [`fingerprint`]; the innermost runs are dense.
    unsafe fn direct(&self, out: &mut Fingerprint) {
        let mut dims = self.dims();
        let run = dims
            .pop()
            .map_or(0, |(len, _, _)| len * self.layout.itemsize);
        self.each(&dims, |pointer, offset| {
            // SAFETY: an innermost run of the layout is `run` dense, readable bytes.
            out.add(offset as u64, unsafe {
                std::slice::from_raw_parts(pointer, run)
            });
        });
    }

    /// Gathers elements in logical order, block by block.
    ///
    /// # Safety
    /// As for [`fingerprint`].
    unsafe fn gathered(&self, out: &mut Fingerprint) {
        let itemsize = self.layout.itemsize;
        let capacity = BLOCK / (4 * itemsize) * (4 * itemsize);
        let mut block = [0u8; BLOCK];
        let (mut filled, mut fed) = (0, 0u64);
        let mut dims = self.dims();
        let (len, step, _) = dims.pop().unwrap_or((1, 0, itemsize));
        self.each(&dims, |mut pointer, _| {
            let mut left = len;
            while left > 0 {
                let count = left.min((capacity - filled) / itemsize);
                let target = &mut block[filled..filled + count * itemsize];
                // SAFETY: the next `count` elements of this run are readable.
                unsafe { gather(pointer, step, itemsize, target) };
                pointer = pointer.wrapping_offset(step * count as isize);
                filled += count * itemsize;
                left -= count;
                if filled == capacity {
                    out.add(fed, &block[..filled]);
                    fed += filled as u64;
                    filled = 0;
                }
            }
        });
        out.add(fed, &block[..filled]);
    }

    /// Reads the elements of `dim` that lie side by side, column by column, as they lie.
    ///
    /// # Safety
    /// As for [`fingerprint`]; `dim` has unit stride and [`Self::column_dim`] has named it.
    unsafe fn columns(&self, dim: usize, out: &mut Fingerprint) {
        let itemsize = self.layout.itemsize;
        let mut dims = self.dims();
        let (columns, step, _) = dims.pop().unwrap_or((1, 0, itemsize));
        let (rows, unit, row_bytes) = dims.remove(dim);
        let row_words = (row_bytes / 4) as u64;
        let mut offered = out.level.column_lanes().into_iter();
        let Some(lanes) = offered.find(|&lanes| rows >= rows_of_lanes(lanes, itemsize)) else {
            return;
        };
        let height = rows_of_lanes(lanes, itemsize);
        let per_row = lanes / height;
        let mut values = [Values::default(); MOST_LANES];
        let values = &mut values[..lanes];
        self.each(&dims, |pointer, offset| {
            let mut done = 0;
            while done < rows {
                // The last block overlaps the one before it, so that all have the same height.
                let start = done.min(rows - height);
                let source = pointer.wrapping_offset(start as isize * unit);
                let first = (offset / 4) as u64 + start as u64 * row_words;
                let size = [columns, itemsize];
                // SAFETY: the block's elements are `height` rows of the layout.
                let block = unsafe { Block::new(source, step, size, [first, row_words]) };
                out.level.columns(&block, values);
                for row in done - start..height {
                    let index = first + row as u64 * row_words;
                    if let Some(region) = out.region_of_row(index, columns * itemsize / 4) {
                        for value in &values[row * per_row..][..per_row] {
                            out.add_values(region, &[*value]);
                        }
                    } else {
                        let source = source.wrapping_offset(row as isize * unit);
                        // SAFETY: the row's elements are elements of the layout.
                        unsafe { self.row(source, step, columns, index * 4, out) };
                    }
                }
                done = start + height;
            }
        });
    }

    /// Gathers one row of `columns` elements, `step` bytes apart, that stands at `offset`.
    ///
    /// # Safety
    /// The elements are readable.
    unsafe fn row(
        &self,
        pointer: *const u8,
        step: isize,
        columns: usize,
        offset: u64,
        out: &mut Fingerprint,
    ) {
        let itemsize = self.layout.itemsize;
        // A multiple of 4 elements, so that every piece begins at a word.
        let width = BLOCK / itemsize / 4 * 4;
        let mut block = [0u8; BLOCK];
        for column in (0..columns).step_by(width) {
            let piece = &mut block[..width.min(columns - column) * itemsize];
            let source = pointer.wrapping_offset(column as isize * step);
            // SAFETY: forwarded from this function's caller.
            unsafe { gather(source, step, itemsize, piece) };
            out.add(offset + (column * itemsize) as u64, piece);
        }
    }
}
