//! Nesting of slices and the wire format. What a whole report holds is tested from Python, with
//! Perfetto's own definitions.

use proptest::prelude::*;

use super::events::{Edge, Span, edges};
use super::proto::Message;

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
    message.int(1, -1);
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
    fn two_integers_put_together_are_the_same_as_nested(
        (field, first, second) in (1u32..100, (1u32..30, any::<u64>()), (1u32..30, any::<u64>())),
    ) {
        let (mut nested, mut together) = (Message::default(), Message::default());
        nested.nested(field, |message| {
            message.uint(first.0, first.1);
            message.uint(second.0, second.1);
        });
        together.nested_uints(field, [first, second]);
        prop_assert_eq!(nested.bytes(), together.bytes());
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

proptest! {
    #[test]
    fn every_slice_begins_and_ends_once_at_its_times(spans in nested_spans()) {
        let mut open = Vec::new();
        let mut closed = Vec::new();
        let mut now = 0;
        for edge in edges("track", spans.clone()).unwrap() {
            match edge {
                Edge::Begin(slice) => {
                    prop_assert!(now <= spans[slice].begin_ns);
                    now = spans[slice].begin_ns;
                    open.push(slice);
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
    let error = edges("rank 0", vec![span(0, 0, 10), span(1, 5, 11)]).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("slices 0 and 1 of track \"rank 0\" overlap"),
        "{message}"
    );
}
