//! Nesting of slices and the wire format. What a whole report holds is tested from Python, with
//! Perfetto's own definitions.

use proptest::prelude::*;

use super::ReportError;
use super::events::{Edge, Span, edges};
use super::proto::{Message, Short, WireType};

#[test]
fn lengths_grow_where_a_varint_needs_another_byte() {
    for (length, header) in [(0, 2), (127, 2), (128, 3), (16_383, 3), (16_384, 4)] {
        let text = "x".repeat(length);
        let mut plain = Message::default();
        plain.text(1, &text);
        assert_eq!(plain.bytes().len(), header + length);
        // A message whose content is known byte by byte has the same frame as a text.
        let fields = plain.bytes().len();
        let mut framed = Message::default();
        framed.text(1, &"x".repeat(fields));
        let mut nested = Message::default();
        nested.nested(1, |message| message.append(&plain));
        assert_eq!(nested.bytes().len(), framed.bytes().len());
        assert_eq!(
            nested.bytes()[..framed.bytes().len() - fields],
            framed.bytes()[..framed.bytes().len() - fields]
        );
        assert_eq!(
            &nested.bytes()[nested.bytes().len() - fields..],
            plain.bytes()
        );
    }
}

#[test]
fn integers_have_the_bytes_of_the_specification() {
    let mut message = Message::default();
    // The example of the protocol buffers documentation: field 1 with 150.
    message.uint(1, 150);
    assert_eq!(message.bytes(), [0x08, 0x96, 0x01]);
    message.clear();
    message.uint(1, (-1i64).cast_unsigned());
    assert_eq!(
        message.bytes(),
        [8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]
    );
    message.clear();
    message.fixed64(47, 1);
    assert_eq!(message.bytes(), [0xF9, 0x02, 1, 0, 0, 0, 0, 0, 0, 0]);
}

proptest! {
    #[test]
    fn a_value_behind_a_head_is_the_same_as_nested(
        field in 1u32..100, first in (1u32..30, 0u64..1 << 56), second in (1u32..30, any::<u64>()),
    ) {
        let (mut nested, mut headed) = (Message::default(), Message::default());
        nested.nested(field, |message| {
            message.uint(first.0, first.1);
            message.uint(second.0, second.1);
        });
        let head = Short::head(first.0, first.1, second.0, WireType::Varint);
        headed.headed(field, head, Short::varint(second.1));
        prop_assert_eq!(nested.bytes(), headed.bytes());
    }

    #[test]
    fn varints_have_seven_bits_a_byte(value in any::<u64>(), bits in 0u32..64) {
        let value = value >> bits;
        let mut message = Message::default();
        message.uint(1, value);
        let (last, others) = message.bytes()[1..].split_last().unwrap();
        prop_assert!(others.iter().all(|byte| *byte >= 0x80) && *last < 0x80);
        let groups = message.bytes()[1..].iter().rev();
        let decoded = groups.fold(0u64, |value, byte| value << 7 | u64::from(byte & 0x7F));
        prop_assert_eq!(decoded, value);
        // The shortest form.
        prop_assert!(others.is_empty() || *last > 0);
    }
}

/// Slices that nest: each lies in a random part of the one before it or of an outer one.
fn nested_spans() -> impl Strategy<Value = Vec<Span>> {
    prop::collection::vec((any::<prop::sample::Index>(), 0u64..50, 0u64..50), 0..40).prop_map(
        |choices| {
            // Free intervals; a new slice takes the middle of one and splits it into three.
            let mut free = vec![(0u64, 1_000_000u64)];
            let mut spans = Vec::new();
            for (slice, (index, left, right)) in choices.into_iter().enumerate() {
                let (begin, end) = free.remove(index.index(free.len()));
                let length = end - begin;
                let begin_ns = begin + length * left / 100;
                let end_ns = end - length * right / 100;
                spans.push(Span {
                    slice,
                    begin_ns,
                    end_ns,
                });
                free.extend([(begin, begin_ns), (begin_ns, end_ns), (end_ns, end)]);
            }
            spans
        },
    )
}

fn listed(track: &str, spans: Vec<Span>) -> Result<Vec<Edge>, ReportError> {
    let mut listed = Vec::new();
    edges(track, spans, |edge| {
        listed.push(edge);
        Ok(())
    })?;
    Ok(listed)
}

proptest! {
    #[test]
    fn every_slice_begins_and_ends_once_at_its_times(spans in nested_spans()) {
        let mut open = Vec::new();
        let mut closed = Vec::new();
        let mut now = 0;
        for edge in listed("track", spans.clone()).unwrap() {
            match edge {
                Edge::Begin(span) => {
                    prop_assert_eq!(span, spans[span.slice]);
                    prop_assert!(now <= span.begin_ns);
                    now = span.begin_ns;
                    open.push(span.slice);
                }
                Edge::End(time) => {
                    let slice = open.pop().unwrap();
                    prop_assert_eq!(spans[slice].end_ns, time);
                    prop_assert!(now <= time);
                    now = time;
                    closed.push(slice);
                }
            }
        }
        closed.sort_unstable();
        prop_assert!(open.is_empty());
        prop_assert_eq!(closed, (0..spans.len()).collect::<Vec<_>>());
    }
}

#[test]
fn slices_that_overlap_without_nesting_are_refused() {
    let span = |slice, begin_ns, end_ns| Span {
        slice,
        begin_ns,
        end_ns,
    };
    let error = listed("rank 0", vec![span(0, 0, 10), span(1, 5, 11)]).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("slices 0 and 1 of track \"rank 0\" overlap"),
        "{message}"
    );
}
