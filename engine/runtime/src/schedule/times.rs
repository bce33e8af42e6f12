//! Who did something when, between two looks: for the trace, and for what of a step is the driver's.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Times of a node that are closer than this are one in the trace: it has a line for each.
const CLOSE: Duration = Duration::from_millis(1);

/// Times of nodes, of many tasks at once.
#[derive(Clone, Default)]
pub struct Times(Arc<Mutex<ByNode>>);

type ByNode = BTreeMap<Arc<str>, Vec<Range<Instant>>>;

impl Times {
    /// A node did something until now.
    pub fn add(&self, node: &Arc<str>, since: Instant) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.entry(node.clone()).or_default().push(since..Instant::now());
    }

    /// What was added since this was asked last: of each node, when any of its tasks was at work.
    pub fn take(&self) -> ByNode {
        let times = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        times
            .into_iter()
            .map(|(node, times)| (node, merged(times, CLOSE)))
            .collect()
    }
}

/// Ranges that overlap or lie closer than `gap` become one; in order.
fn merged(mut ranges: Vec<Range<Instant>>, gap: Duration) -> Vec<Range<Instant>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<Instant>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end + gap => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Seconds of `within` that none of the ranges covers.
pub fn uncovered_s(ranges: impl Iterator<Item = Range<Instant>>, within: &Range<Instant>) -> f64 {
    let clipped = ranges.map(|range| range.start.max(within.start)..range.end.min(within.end));
    let clipped = clipped.filter(|range| range.start < range.end).collect();
    let covered: Duration = merged(clipped, Duration::ZERO)
        .iter()
        .map(|range| range.end - range.start)
        .sum();
    (within.end - within.start).saturating_sub(covered).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_is_counted_once_and_what_is_outside_not_at_all() {
        let zero = Instant::now();
        let at = |seconds: u64| zero + Duration::from_secs(seconds);
        let range = |from: u64, to: u64| at(from)..at(to);
        let within = range(10, 20);
        let uncovered = |ranges: &[Range<Instant>]| uncovered_s(ranges.iter().cloned(), &within).round() as u64;
        assert_eq!(uncovered(&[]), 10);
        assert_eq!(uncovered(&[range(0, 10), range(20, 30)]), 10);
        assert_eq!(uncovered(&[range(0, 12), range(11, 13), range(19, 40)]), 6);
        assert_eq!(uncovered(&[range(15, 16), range(12, 18)]), 4);
        assert_eq!(uncovered(&[range(0, 40)]), 0);
    }

    #[test]
    fn tasks_of_a_node_are_one_time_where_they_touch() {
        let times = Times::default();
        let (judge, other): (Arc<str>, Arc<str>) = ("judge".into(), "other".into());
        let since = Instant::now();
        times.add(&judge, since);
        times.add(&other, since);
        times.add(&judge, since + Duration::ZERO);
        let taken = times.take();
        assert_eq!(taken.keys().map(|name| &**name).collect::<Vec<_>>(), ["judge", "other"]);
        assert_eq!(taken[&judge].len(), 1);
        assert_eq!(taken[&judge][0].start, since);
        assert!(times.take().is_empty());
        let far = vec![
            since + Duration::from_secs(2)..since + Duration::from_secs(3),
            since..since + Duration::from_secs(1),
        ];
        assert_eq!(merged(far.clone(), CLOSE), [far[1].clone(), far[0].clone()]);
    }
}
