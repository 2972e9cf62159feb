//! The C structures of DLPack 1.x that borrowing a tensor needs.
//!
//! Source: `include/dlpack/dlpack.h` of the DLPack project, versions 1.1 to 1.3. The header of
//! the exchange table is stable over all versions; the rest over one major version.

use std::ffi::{c_int, c_void};

/// Major version of the structures below.
pub(super) const MAJOR: u32 = 1;
/// Name of the capsule that holds an [`ExchangeTable`].
pub(super) const CAPSULE: &std::ffi::CStr = c"dlpack_exchange_api";

/// Kind of a device: `DLDeviceType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct DeviceKind(pub i32);

impl DeviceKind {
    /// Memory of the host.
    pub const CPU: Self = Self(1);
    /// Memory of a CUDA device.
    pub const CUDA: Self = Self(2);
    /// Host memory that CUDA has pinned.
    pub const CUDA_HOST: Self = Self(3);
    /// Memory of an AMD device.
    pub const ROCM: Self = Self(10);
}

/// A device: `DLDevice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Device {
    /// Kind of memory.
    pub kind: DeviceKind,
    /// Index among the devices of that kind; 0 for the host.
    pub index: i32,
}

/// An element type: `DLDataType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct DataType {
    /// `DLDataTypeCode`: 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool, 7-14 float8 forms,
    /// 17 float4.
    pub code: u8,
    /// Bits of one lane.
    pub bits: u8,
    /// Lanes of one element; 2 for a pair of packed float4.
    pub lanes: u16,
}

impl DataType {
    /// Code of complex numbers.
    pub const COMPLEX: u8 = 5;

    /// Bytes of one element, or `None` if it does not fill whole bytes.
    pub fn itemsize(self) -> Option<usize> {
        let bits = usize::from(self.bits) * usize::from(self.lanes);
        (bits > 0 && bits.is_multiple_of(8)).then_some(bits / 8)
    }
}

/// `DLTensor`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RawTensor {
    pub data: *const c_void,
    pub device: Device,
    pub ndim: i32,
    pub dtype: DataType,
    pub shape: *const i64,
    pub strides: *const i64,
    pub byte_offset: u64,
}

/// `DLPackDLTensorFromPyObjectNoSync`: 0, or -1 with a Python exception set.
pub(super) type FromObject =
    unsafe extern "C" fn(object: *mut c_void, out: *mut RawTensor) -> c_int;

/// `DLPackExchangeAPIHeader`.
#[repr(C)]
pub(super) struct Header {
    pub major: u32,
    pub minor: u32,
    pub previous: *const Header,
}

/// `DLPackExchangeAPI`.
#[repr(C)]
pub(super) struct ExchangeTable {
    pub header: Header,
    pub managed_tensor_allocator: *const c_void,
    pub managed_tensor_from_object: *const c_void,
    pub managed_tensor_to_object: *const c_void,
    pub tensor_from_object: Option<FromObject>,
    pub current_work_stream: *const c_void,
}
