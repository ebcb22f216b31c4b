//! Arithmetic on sets of spans of time.

use crate::clock::Nanos;

/// The time from `from` until `to`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Span {
    pub from: Nanos,
    pub to: Nanos,
}

impl Span {
    pub fn new(from: Nanos, to: Nanos) -> Self {
        Self { from, to }
    }

    pub fn length(self) -> Nanos {
        self.to.saturating_sub(self.from)
    }

    pub fn meets(self, other: Self) -> bool {
        self.from < other.to && other.from < self.to
    }
}

/// Returns the times that are in at least `least` of the sets, as sorted spans that do not touch.
/// The spans of one set may overlap.
pub fn at_least(least: usize, sets: &[Vec<Span>]) -> Vec<Span> {
    let mut edges = Vec::new();
    for (set, spans) in sets.iter().enumerate() {
        for span in spans.iter().filter(|span| span.from < span.to) {
            edges.push((span.from, 1, set));
            edges.push((span.to, -1, set));
        }
    }
    // At one time, spans begin before others end. So spans that touch become one.
    edges.sort_unstable_by_key(|&(at, step, _)| (at, -step));
    let mut open = vec![0; sets.len()];
    let mut covering = 0;
    let mut from = None;
    let mut spans = Vec::new();
    for (at, step, set) in edges {
        let was_open = open[set] > 0;
        open[set] += step;
        match (was_open, open[set] > 0) {
            (false, true) => covering += 1,
            (true, false) => covering -= 1,
            _ => {}
        }
        if covering >= least {
            from = from.or(Some(at));
        } else if let Some(from) = from.take() {
            spans.push(Span::new(from, at));
        }
    }
    spans.retain(|span| span.from < span.to);
    spans
}

/// Returns the length of all stalls that meet a span.
pub fn stalled(stalls: &[Span], span: Span) -> Nanos {
    let meeting = stalls.iter().filter(|stall| stall.meets(span));
    meeting.map(|stall| stall.length()).sum()
}

pub fn union(spans: Vec<Span>) -> Vec<Span> {
    at_least(1, &[spans])
}

/// Returns the times of `all` that are not in `spans`.
pub fn without(all: Span, spans: Vec<Span>) -> Vec<Span> {
    let mut from = all.from;
    let mut rest = Vec::new();
    for span in union(spans) {
        rest.push(Span::new(from, span.from.min(all.to)));
        from = from.max(span.to);
    }
    rest.push(Span::new(from, all.to));
    rest.retain(|span| span.from < span.to);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans<const N: usize>(spans: [(Nanos, Nanos); N]) -> Vec<Span> {
        spans.map(|(from, to)| Span::new(from, to)).to_vec()
    }

    #[test]
    fn spans_are_united_intersected_and_subtracted() {
        let all = spans([(5, 9), (0, 2), (2, 3), (6, 7), (8, 12)]);
        assert_eq!(union(all), spans([(0, 3), (5, 12)]));

        let sets = [
            spans([(0, 10)]),
            spans([(5, 15)]),
            spans([(8, 20), (9, 12)]),
        ];
        assert_eq!(at_least(2, &sets), spans([(5, 15)]));
        assert_eq!(at_least(3, &sets), spans([(8, 10)]));

        let rest = without(Span::new(2, 10), spans([(0, 3), (5, 6), (9, 20)]));
        assert_eq!(rest, spans([(3, 5), (6, 9)]));
        assert_eq!(without(Span::new(2, 4), vec![]), spans([(2, 4)]));
    }
}
