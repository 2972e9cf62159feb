//! Packets of a report: track descriptors, begins and ends.

use std::io::{self, Write};

use super::annotations;
use super::columns::cell;
use super::fields::{event, packet, trace, track};
use super::intern::Interned;
use super::plan::Slice;
use super::proto::Message;
use super::{ROOT_TRACK, ReportError};

/// The only packet sequence of a report.
const SEQUENCE: u64 = 1;
/// Columns of the slices that are not annotations.
const SLICE_COLUMNS: [&str; 5] = ["id", "track", "ts_ns", "dur_ns", "name"];

/// Writes packets, one after another.
pub struct Encoder<W> {
    out: W,
    /// The packet under construction; kept for its memory.
    packet: Message,
    interned: Interned,
    bytes: u64,
}

impl<W: Write> Encoder<W> {
    /// An encoder that has written nothing yet.
    pub fn new(out: W) -> Self {
        Self {
            out,
            packet: Message::default(),
            interned: Interned::default(),
            bytes: 0,
        }
    }

    /// Hands everything to the operating system; returns the number of bytes written.
    pub fn finish(mut self) -> io::Result<u64> {
        self.out.flush()?;
        Ok(self.bytes)
    }

    /// Begins a packet of the report's only sequence.
    pub fn start_packet(&mut self) {
        self.packet.clear();
        self.packet
            .uint(packet::TRUSTED_PACKET_SEQUENCE_ID, SEQUENCE);
        // The first packet of a sequence must clear the state, or those before it are dropped.
        let first = self.bytes == 0;
        let cleared = if first {
            packet::INCREMENTAL_STATE_CLEARED
        } else {
            0
        };
        self.packet.uint(
            packet::SEQUENCE_FLAGS,
            cleared | packet::NEEDS_INCREMENTAL_STATE,
        );
        if first {
            self.packet.uint(packet::FIRST_PACKET_ON_SEQUENCE, 1);
        }
    }

    /// Writes the packet under construction.
    pub fn finish_packet(&mut self) -> io::Result<()> {
        let mut framed = Message::default();
        framed.nested(trace::PACKET, |packet| packet.append(&self.packet));
        self.bytes += framed.bytes().len() as u64;
        self.out.write_all(framed.bytes())
    }

    /// A track: the root without a rank, any other below it.
    pub fn descriptor(&mut self, name: &str, uuid: u64, rank: Option<u64>) -> io::Result<()> {
        self.start_packet();
        self.packet.nested(packet::TRACK_DESCRIPTOR, |message| {
            message.uint(track::UUID, uuid);
            message.text(track::NAME, name);
            message.uint(track::SIBLING_MERGE_BEHAVIOR, track::MERGE_NONE);
            match rank {
                None => message.uint(track::CHILD_ORDERING, track::ORDERING_EXPLICIT),
                Some(rank) => {
                    message.uint(track::PARENT_UUID, ROOT_TRACK);
                    message.uint(track::SIBLING_ORDER_RANK, rank);
                }
            }
        });
        self.finish_packet()
    }

    /// Adds the begin of a slice to the packet.
    pub fn begin(&mut self, track: u64, slice: &Slice<'_>) -> Result<(), ReportError> {
        let Self {
            packet: message,
            interned,
            ..
        } = self;
        let name = interned.event_name(slice.row.text("name")?);
        message.uint(packet::TIMESTAMP, slice.span.begin_ns);
        message.nested(packet::TRACK_EVENT, |message| {
            message.uint(event::TYPE, event::SLICE_BEGIN);
            message.uint(event::TRACK_UUID, track);
            message.uint(event::NAME_IID, name);
            slice
                .flows
                .iter()
                .for_each(|id| message.fixed64(event::FLOW_IDS, *id));
            let batch = slice.row.batch;
            for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
                if !SLICE_COLUMNS.contains(&field.name().as_str()) {
                    let value = cell(column, slice.row.row)?;
                    let annotations = event::DEBUG_ANNOTATIONS;
                    annotations::named(message, annotations, interned, field.name(), &value)?;
                }
            }
            if !slice.slots.is_empty() {
                annotations::slots(message, event::DEBUG_ANNOTATIONS, interned, &slice.slots)?;
            }
            Ok(())
        })?;
        interned.take_fresh(message, packet::INTERNED_DATA);
        Ok(())
    }

    /// Adds the end of the innermost open slice of a track to the packet.
    pub fn end(&mut self, track: u64, time_ns: u64) {
        self.packet.uint(packet::TIMESTAMP, time_ns);
        self.packet.nested(packet::TRACK_EVENT, |message| {
            message.uint(event::TYPE, event::SLICE_END);
            message.uint(event::TRACK_UUID, track);
        });
    }
}
