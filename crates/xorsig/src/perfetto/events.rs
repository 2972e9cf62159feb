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
    /// This slice begins.
    Begin(Span),
    /// The innermost open slice ends at this time, ns.
    End(u64),
}

/// Passes the edges of a track on to `take`, in an order in which begins and ends nest.
///
/// # Errors
/// [`ReportError::Invalid`] if two slices overlap without nesting, and what `take` returns.
pub fn edges(
    track: &str,
    mut spans: Vec<Span>,
    mut take: impl FnMut(Edge) -> Result<(), ReportError>,
) -> Result<(), ReportError> {
    // Stable: of two equal slices the one listed first is the outer one.
    spans.sort_by_key(|span| (span.begin_ns, std::cmp::Reverse(span.end_ns)));
    let mut open: Vec<Span> = Vec::new();
    for span in spans {
        while let Some(outer) = open.pop_if(|outer| outer.end_ns <= span.begin_ns) {
            take(Edge::End(outer.end_ns))?;
        }
        if let Some(outer) = open.last().filter(|outer| outer.end_ns < span.end_ns) {
            return Err(ReportError::Invalid(format!(
                "slices {} and {} of track {track:?} overlap without nesting; put them on \
                 different tracks",
                outer.slice, span.slice
            )));
        }
        take(Edge::Begin(span))?;
        open.push(span);
    }
    let mut left = open.iter().rev();
    left.try_for_each(|span| take(Edge::End(span.end_ns)))
}
