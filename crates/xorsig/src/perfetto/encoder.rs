//! Packets of a report: track descriptors, begins and ends.

use std::io::{self, Write};

use super::annotations::{self, SlotColumns};
use super::events::Span;
use super::fields::{event, packet, trace, track};
use super::intern::Interned;
use super::plan::Plan;
use super::proto::Message;
use super::{ROOT_TRACK, ReportError};

/// The only packet sequence of a report.
const SEQUENCE: u64 = 1;
/// Packets are handed to the system when they fill this many bytes.
const BUFFER_BYTES: usize = 1 << 18;

/// Writes packets, one after another.
pub struct Encoder<W> {
    out: W,
    /// Packets that were not handed on yet.
    packets: Message,
    interned: Interned,
    bytes: u64,
    first: bool,
}

impl<W: Write> Encoder<W> {
    /// An encoder that has written nothing yet.
    pub fn new(out: W) -> Self {
        Self {
            out,
            packets: Message::default(),
            interned: Interned::default(),
            bytes: 0,
            first: true,
        }
    }

    /// Hands everything to the operating system; returns the number of bytes written.
    pub fn finish(mut self) -> io::Result<u64> {
        self.hand_on()?;
        self.out.flush()?;
        Ok(self.bytes)
    }

    /// A track: the root without a rank, any other below it.
    pub fn descriptor(&mut self, name: &str, uuid: u64, rank: Option<u64>) -> io::Result<()> {
        self.packet(|packet, _| {
            packet.nested(packet::TRACK_DESCRIPTOR, |message| {
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
        })
    }

    /// The begin of a slice.
    pub fn begin(
        &mut self,
        track: u64,
        span: &Span,
        plan: &mut Plan<'_>,
        slots: &mut [SlotColumns<'_>],
    ) -> Result<io::Result<()>, ReportError> {
        let mut refused = Ok(());
        let written = self.packet(|packet, interned| {
            packet.uint(packet::TIMESTAMP, span.begin_ns);
            refused = packet.nested(packet::TRACK_EVENT, |message| {
                let (batch, row) = plan.row(span.slice);
                let name = interned.event_name(batch.name.text(row)?);
                message.uint(event::TYPE, event::SLICE_BEGIN);
                message.uint(event::TRACK_UUID, track);
                message.uint(event::NAME_IID, name);
                for annotation in &mut batch.annotations {
                    annotation.put(message, event::DEBUG_ANNOTATIONS, interned, row)?;
                }
                for id in plan.flows.of(span.slice) {
                    message.fixed64(event::FLOW_IDS, *id);
                }
                let rows = plan.slots.of(span.slice);
                if !rows.is_empty() {
                    let field = event::DEBUG_ANNOTATIONS;
                    annotations::slots(message, field, interned, slots, rows)?;
                }
                Ok(())
            });
            interned.take_fresh(packet, packet::INTERNED_DATA);
        });
        refused.map(|()| written)
    }

    /// The end of the innermost open slice of a track.
    pub fn end(&mut self, track: u64, time_ns: u64) -> io::Result<()> {
        self.packet(|packet, _| {
            packet.uint(packet::TIMESTAMP, time_ns);
            packet.nested(packet::TRACK_EVENT, |message| {
                message.uint(event::TYPE, event::SLICE_END);
                message.uint(event::TRACK_UUID, track);
            });
        })
    }

    /// A packet of the report's only sequence.
    fn packet(&mut self, fill: impl FnOnce(&mut Message, &mut Interned)) -> io::Result<()> {
        // The first packet of a sequence must clear the state, or those before it are dropped.
        let first = std::mem::take(&mut self.first);
        let cleared = if first {
            packet::INCREMENTAL_STATE_CLEARED
        } else {
            0
        };
        let interned = &mut self.interned;
        self.packets.nested(trace::PACKET, |packet| {
            packet.uint(packet::TRUSTED_PACKET_SEQUENCE_ID, SEQUENCE);
            packet.uint(
                packet::SEQUENCE_FLAGS,
                cleared | packet::NEEDS_INCREMENTAL_STATE,
            );
            if first {
                packet.uint(packet::FIRST_PACKET_ON_SEQUENCE, 1);
            }
            fill(packet, interned);
        });
        if self.packets.bytes().len() >= BUFFER_BYTES {
            self.hand_on()?;
        }
        Ok(())
    }

    fn hand_on(&mut self) -> io::Result<()> {
        let bytes = self.packets.bytes();
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)?;
        self.packets.clear();
        Ok(())
    }
}
