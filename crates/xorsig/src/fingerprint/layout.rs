//! Checked descriptions of tensors in memory.

use super::MAX_REGIONS;

/// Largest element size, bytes; no element type of a tensor library comes near it.
const MAX_ITEMSIZE: usize = 1024;

/// Why a tensor description cannot be walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// `regions` is not 1 to 64.
    Regions,
    /// `shape` and `strides` have different lengths.
    Rank,
    /// The element size is 0 or does not fit a block.
    ItemSize,
    /// The size in bytes, or the distance of two elements, does not fit an address.
    TooLarge,
    /// The address is null although there are elements.
    NullAddress,
}

impl std::fmt::Display for LayoutError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Regions => write!(f, "regions must be 1 to {MAX_REGIONS}"),
            Self::Rank => f.write_str("shape and strides must have the same length"),
            Self::ItemSize => write!(f, "itemsize must be 1 to {MAX_ITEMSIZE}"),
            Self::TooLarge => f.write_str("the tensor's extent does not fit the address space"),
            Self::NullAddress => f.write_str("address is null, but the tensor has elements"),
        }
    }
}

impl std::error::Error for LayoutError {}

/// A checked description of a tensor: dimensions of length 1 dropped, dense neighbours merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// (length, distance in bytes), outermost first.
    pub(super) dims: Vec<(usize, isize)>,
    pub(super) itemsize: usize,
    nbytes: usize,
}

impl Layout {
    /// Checks and simplifies a description; `strides` are in elements and may be 0 or negative.
    ///
    /// # Errors
    /// Every [`LayoutError`] save [`LayoutError::Regions`] and [`LayoutError::NullAddress`].
    pub fn new(shape: &[usize], strides: &[isize], itemsize: usize) -> Result<Self, LayoutError> {
        if shape.len() != strides.len() {
            return Err(LayoutError::Rank);
        }
        if !(1..=MAX_ITEMSIZE).contains(&itemsize) {
            return Err(LayoutError::ItemSize);
        }
        if shape.contains(&0) {
            return Ok(Self {
                dims: vec![(0, 0)],
                itemsize,
                nbytes: 0,
            });
        }
        let nbytes = shape
            .iter()
            .try_fold(itemsize, |n, &len| n.checked_mul(len));
        let nbytes = nbytes
            .filter(|&n| isize::try_from(n).is_ok())
            .ok_or(LayoutError::TooLarge)?;
        let mut dims: Vec<(usize, isize)> = Vec::with_capacity(shape.len());
        for (&len, &stride) in shape.iter().zip(strides).filter(|&(&len, _)| len != 1) {
            let step = stride
                .checked_mul(itemsize as isize)
                .ok_or(LayoutError::TooLarge)?;
            let extent = step
                .checked_mul(len as isize)
                .ok_or(LayoutError::TooLarge)?;
            match dims.last_mut() {
                Some(outer) if outer.1 == extent => *outer = (outer.0 * len, step),
                _ => dims.push((len, step)),
            }
        }
        Ok(Self {
            dims,
            itemsize,
            nbytes,
        })
    }

    /// Logical size in bytes.
    pub fn nbytes(&self) -> usize {
        self.nbytes
    }

    /// Whether the elements lie one after another in logical order.
    pub(super) fn is_dense(&self) -> bool {
        matches!(self.dims[..], [] | [(0, _)])
            || matches!(self.dims[..], [(_, step)] if step == self.itemsize as isize)
    }
}
