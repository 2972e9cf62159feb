//! Slices of one track to a properly nested sequence of begins and ends.

use super::ReportError;

/// A slice, as far as its place on its track matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Index of the slice in the table.
    pub slice: usize,
    /// Begin, ns.
    pub begin_ns: u64,
    /// End, ns.
    pub end_ns: u64,
}

/// A begin or an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The slice with this index begins.
    Begin(usize),
    /// The innermost open slice ends at this time, ns.
    End(u64),
}

/// The edges of a track in an order in which begins and ends nest.
///
/// # Errors
/// [`ReportError::Invalid`] if two slices overlap without nesting.
pub fn edges(track: &str, mut spans: Vec<Span>) -> Result<Vec<Edge>, ReportError> {
    // Stable: of two equal slices the one listed first is the outer one.
    spans.sort_by_key(|span| (span.begin_ns, std::cmp::Reverse(span.end_ns)));
    let mut edges = Vec::with_capacity(2 * spans.len());
    let mut open: Vec<Span> = Vec::new();
    for span in spans {
        while let Some(outer) = open.pop_if(|outer| outer.end_ns <= span.begin_ns) {
            edges.push(Edge::End(outer.end_ns));
        }
        if let Some(outer) = open.last().filter(|outer| outer.end_ns < span.end_ns) {
            return Err(ReportError::Invalid(format!(
                "slices {} and {} of track {track:?} overlap without nesting; put them on \
                 different tracks",
                outer.slice, span.slice
            )));
        }
        edges.push(Edge::Begin(span.slice));
        open.push(span);
    }
    edges.extend(open.iter().rev().map(|span| Edge::End(span.end_ns)));
    Ok(edges)
}
