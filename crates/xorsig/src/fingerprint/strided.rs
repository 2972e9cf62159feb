//! Fingerprints of tensors in memory, dense or not, without a copy of the whole tensor.
//!
//! Logical row-major order decides a word's index; the walk goes through memory in whatever
//! order is near, one block of at most [`BLOCK`] bytes at a time.

use super::Fingerprint;
use super::gather::{gather, transpose};
use super::layout::{Layout, LayoutError};
use super::level::Level;

/// Bytes gathered before the kernel runs; fits a first-level cache beside what is read.
const BLOCK: usize = 16 * 1024;
/// Runs of at least this many dense bytes are read where they lie.
const DIRECT_RUN: usize = 512;
/// Bytes of the unit-stride dimension that a transposing tile takes together: a cache line.
const LINE: usize = 64;

/// Both values of each region of the tensor at `address`.
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
        out.add(0, unsafe { std::slice::from_raw_parts(address, nbytes) });
        return Ok(out);
    }
    let walk = Walk { address, layout };
    // SAFETY: forwarded from this function's caller, in all three walks.
    unsafe {
        match walk.tile_dim() {
            _ if walk.has_direct_runs() => walk.direct(&mut out),
            Some(dim) => walk.tiled(dim, &mut out),
            None => walk.gathered(&mut out),
        }
    }
    Ok(out)
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

    /// A dimension with unit stride beside an innermost one without, if tiles end at words.
    fn tile_dim(&self) -> Option<usize> {
        let (len, _) = self.inner();
        let unit = self.layout.itemsize as isize;
        let outer = &self.layout.dims[..self.layout.dims.len().saturating_sub(1)];
        let whole_words = (len * self.layout.itemsize).is_multiple_of(4);
        outer
            .iter()
            .position(|&(_, step)| step == unit)
            .filter(|_| whole_words)
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

    /// Transposes tiles of (`dim`, innermost), so that each cache line is read once.
    ///
    /// # Safety
    /// As for [`fingerprint`]; `dim` has unit stride and innermost runs are whole words.
    unsafe fn tiled(&self, dim: usize, out: &mut Fingerprint) {
        let itemsize = self.layout.itemsize;
        let mut dims = self.dims();
        let (columns, step, _) = dims.pop().unwrap_or((1, 0, itemsize));
        let (rows, unit, row_bytes) = dims.remove(dim);
        let height = (LINE / itemsize).max(1);
        // A multiple of 4 elements, so that a piece of any element size begins at a word.
        let width = (BLOCK / (height * itemsize * 4) * 4).max(4);
        let pitch = width * itemsize;
        let mut tile = vec![0u8; height * pitch];
        self.each(&dims, |pointer, offset| {
            for row in (0..rows).step_by(height) {
                let height = height.min(rows - row);
                for column in (0..columns).step_by(width) {
                    let count = width.min(columns - column);
                    let start = row as isize * unit + column as isize * step;
                    let source = pointer.wrapping_offset(start);
                    // SAFETY: elements (row.., column..) of the tile are readable.
                    unsafe { transpose(source, step, itemsize, [height, count], pitch, &mut tile) };
                    for (r, piece) in tile.chunks_exact(pitch).take(height).enumerate() {
                        let at = offset + (row + r) * row_bytes + column * itemsize;
                        out.add(at as u64, &piece[..count * itemsize]);
                    }
                }
            }
        });
    }
}
