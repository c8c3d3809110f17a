//! The lag of groups over time, from the reads of pages while the console is in use.
//!
//! No request serves the history alone, because the list of groups and the page of a group read the lag
//! anyway. The history of a group has at most [`POINTS_MAX`] points, and at most [`GROUPS_MAX`] groups have
//! one.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use serde::Serialize;
use utoipa::ToSchema;

/// Groups with a history. The history with the oldest last point gives way to a new group.
const GROUPS_MAX: usize = 256;
/// Points of a history: ten minutes of a live page.
const POINTS_MAX: usize = 240;
/// The shortest time between two points.
const INTERVAL_MS: i64 = 2000;

/// The lag of a group at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LagPoint {
    /// Milliseconds since 1970.
    pub at_ms: i64,
    /// Records over all partitions of the group.
    pub lag: i64,
}

/// Histories by group.
#[derive(Default)]
pub struct Lags(Mutex<HashMap<String, VecDeque<LagPoint>>>);

impl Lags {
    /// Adds a point for a group.
    pub fn note(&self, group: &str, now: LagPoint) {
        let mut lags = self.0.lock();
        if !lags.contains_key(group) && lags.len() >= GROUPS_MAX {
            let newest = |history: &VecDeque<LagPoint>| history.back().map(|point| point.at_ms);
            let stale =
                lags.iter().min_by_key(|(_, history)| newest(history)).map(|(group, _)| group.clone());
            stale.and_then(|group| lags.remove(&group));
        }
        let history = lags.entry(group.to_owned()).or_default();
        // A clock set back invalidates the old points.
        if history.back().is_some_and(|last| last.at_ms > now.at_ms) {
            history.clear();
        }
        if history.back().is_some_and(|last| now.at_ms - last.at_ms < INTERVAL_MS) {
            return;
        }
        if history.len() >= POINTS_MAX {
            history.pop_front();
        }
        history.push_back(now);
    }

    /// The history of a group, oldest first.
    pub fn history(&self, group: &str) -> Vec<LagPoint> {
        self.0.lock().get(group).into_iter().flatten().copied().collect()
    }

    /// Drops all histories.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_bounded_and_in_order() {
        let lags = Lags::default();
        for number in 0..1000 {
            lags.note("billing", LagPoint { at_ms: number * 1000, lag: number });
        }
        let history = lags.history("billing");
        assert_eq!((history.len(), history[POINTS_MAX - 1].lag), (POINTS_MAX, 998), "one in two seconds");
        lags.note("billing", LagPoint { at_ms: 5, lag: 7 });
        assert_eq!(lags.history("billing"), [LagPoint { at_ms: 5, lag: 7 }], "the clock was set back");
        for number in 0..1000 {
            lags.note(&format!("group-{number}"), LagPoint { at_ms: number + 10, lag: 1 });
        }
        assert_eq!(lags.0.lock().len(), GROUPS_MAX);
        assert!(lags.history("billing").is_empty() && !lags.history("group-999").is_empty());
        lags.clear();
        assert!(lags.history("group-999").is_empty());
    }
}
