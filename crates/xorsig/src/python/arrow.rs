//! Tables that export the Arrow C stream interface through a `PyCapsule`.
//!
//! The stream is read here and not by `arrow_array::ffi_stream`, because polars exports a column
//! of nulls with one buffer where the format has none, and arrow-rs refuses that.
//! Source of the structures: <https://arrow.apache.org/docs/format/CStreamInterface.html>.

use std::ffi::{CStr, c_char, c_int, c_void};

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow_array::{RecordBatch, StructArray};
use arrow_schema::{ArrowError, DataType, Schema};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// `struct ArrowArrayStream`.
#[repr(C)]
struct Stream {
    get_schema: Option<unsafe extern "C" fn(*mut Stream, *mut FFI_ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut Stream, *mut FFI_ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut Stream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut Stream)>,
    private_data: *mut c_void,
}

/// `struct ArrowArray`, whose fields `FFI_ArrowArray` keeps private.
#[repr(C)]
struct Array {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut Array,
    dictionary: *mut Array,
    release: Option<unsafe extern "C" fn(*mut Array)>,
    private_data: *mut c_void,
}

/// All rows of a table; the GIL stays held, since a stream may be implemented in Python.
pub fn import(table: &Bound<'_, PyAny>, argument: &str) -> PyResult<Vec<RecordBatch>> {
    let export = table.getattr("__arrow_c_stream__").map_err(|_| {
        PyTypeError::new_err(format!(
            "{argument} must have __arrow_c_stream__, as a DataFrame has"
        ))
    })?;
    let capsule = export.call0()?.cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: a capsule of this name holds a stream structure. Moving it out leaves one that is
    // released, which the capsule's destructor accepts.
    let mut stream = unsafe { pointer.cast::<Stream>().replace(Stream::released()) };
    stream.read().map_err(|error| {
        PyValueError::new_err(format!(
            "{argument} is not a readable Arrow stream: {error}"
        ))
    })
}

impl Stream {
    fn released() -> Self {
        Self {
            get_schema: None,
            get_next: None,
            get_last_error: None,
            release: None,
            private_data: std::ptr::null_mut(),
        }
    }

    /// Reads the stream to its end.
    fn read(&mut self) -> Result<Vec<RecordBatch>, ArrowError> {
        let released = || ArrowError::CDataInterface("the stream was read before".into());
        let mut schema = FFI_ArrowSchema::empty();
        let get_schema = self.get_schema.ok_or_else(released)?;
        // SAFETY: the stream is not released, and `schema` is a place for the result.
        let status = unsafe { get_schema(self, &raw mut schema) };
        self.check(status)?;
        let schema = std::sync::Arc::new(Schema::try_from(&schema)?);
        let row_type = DataType::Struct(schema.fields().clone());
        let get_next = self.get_next.ok_or_else(released)?;
        let mut batches = Vec::new();
        loop {
            let mut array = FFI_ArrowArray::empty();
            // SAFETY: the stream is not released, and `array` is a place for the result.
            let status = unsafe { get_next(self, &raw mut array) };
            self.check(status)?;
            if array.is_released() {
                return Ok(batches);
            }
            // SAFETY: `array` was filled by the producer for this type, and both structures have
            // the layout of the C data interface.
            let data = unsafe {
                drop_null_buffers((&raw mut array).cast(), &row_type);
                from_ffi_and_data_type(array, row_type.clone())?
            };
            batches.push(RecordBatch::from(StructArray::from(data)).with_schema(schema.clone())?);
        }
    }

    fn check(&mut self, status: c_int) -> Result<(), ArrowError> {
        if status == 0 {
            return Ok(());
        }
        let message = self.get_last_error.and_then(|get_last_error| {
            // SAFETY: the stream is not released; the text is valid until its next call.
            unsafe {
                let text = get_last_error(self);
                (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        });
        Err(ArrowError::CDataInterface(
            message.unwrap_or_else(|| format!("status {status}")),
        ))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the stream is not released, and nothing uses it after this.
            unsafe { release(self) };
        }
    }
}

/// Takes the buffers from arrays of nulls, which must have none.
///
/// # Safety
/// `array` and what it points to were filled by a producer for `data_type`.
unsafe fn drop_null_buffers(array: *mut Array, data_type: &DataType) {
    // SAFETY: children and dictionary are those of the type, or the pointers are null.
    unsafe {
        let Some(array) = array.as_mut() else { return };
        let child = |index: usize| {
            let exists = index < array.n_children as usize && !array.children.is_null();
            if exists {
                *array.children.add(index)
            } else {
                std::ptr::null_mut()
            }
        };
        match data_type {
            DataType::Null => array.n_buffers = 0,
            DataType::Struct(fields) => {
                for (index, field) in fields.iter().enumerate() {
                    drop_null_buffers(child(index), field.data_type());
                }
            }
            DataType::List(field)
            | DataType::LargeList(field)
            | DataType::FixedSizeList(field, _) => {
                drop_null_buffers(child(0), field.data_type());
            }
            DataType::Dictionary(_, values) => drop_null_buffers(array.dictionary, values),
            _ => {}
        }
    }
}
