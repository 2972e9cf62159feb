//! Field numbers and enumeration values of Perfetto's trace format.
//!
//! Source: `protos/perfetto/trace/perfetto_trace.proto` of Perfetto 58; a test decodes what is
//! written here with the definitions of the Python package `perfetto`.

/// `Trace`.
pub mod trace {
    pub const PACKET: u32 = 1;
}

/// `TracePacket`.
pub mod packet {
    pub const TIMESTAMP: u32 = 8;
    pub const TRUSTED_PACKET_SEQUENCE_ID: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED_DATA: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const TRACK_DESCRIPTOR: u32 = 60;
    pub const FIRST_PACKET_ON_SEQUENCE: u32 = 87;

    pub const INCREMENTAL_STATE_CLEARED: u64 = 1;
    pub const NEEDS_INCREMENTAL_STATE: u64 = 2;
}

/// `TrackDescriptor`.
pub mod track {
    pub const UUID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const PARENT_UUID: u32 = 5;
    pub const CHILD_ORDERING: u32 = 11;
    pub const SIBLING_ORDER_RANK: u32 = 12;
    pub const SIBLING_MERGE_BEHAVIOR: u32 = 15;

    pub const ORDERING_EXPLICIT: u64 = 3;
    pub const MERGE_NONE: u64 = 2;
}

/// `TrackEvent`.
pub mod event {
    pub const DEBUG_ANNOTATIONS: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME_IID: u32 = 10;
    pub const TRACK_UUID: u32 = 11;
    pub const FLOW_IDS: u32 = 47;

    pub const SLICE_BEGIN: u64 = 1;
    pub const SLICE_END: u64 = 2;
}

/// `DebugAnnotation`.
pub mod annotation {
    pub const NAME_IID: u32 = 1;
    pub const BOOL_VALUE: u32 = 2;
    pub const UINT_VALUE: u32 = 3;
    pub const INT_VALUE: u32 = 4;
    pub const DOUBLE_VALUE: u32 = 5;
    pub const DICT_ENTRIES: u32 = 11;
    pub const ARRAY_VALUES: u32 = 12;
    pub const STRING_VALUE_IID: u32 = 17;
}

/// `InternedData` and the entries of its lists, which are all built alike.
pub mod interned {
    pub const EVENT_NAMES: u32 = 2;
    pub const DEBUG_ANNOTATION_NAMES: u32 = 3;
    pub const DEBUG_ANNOTATION_STRING_VALUES: u32 = 29;

    pub const IID: u32 = 1;
    pub const TEXT: u32 = 2;
}
