//! The lag of groups over time, while the console is in use: from the reads of pages, and from readings in
//! the background for the overview.
//!
//! The history of a group has at most [`POINTS_MAX`] points, and at most [`GROUPS_MAX`] groups have one.
//! Readings in the background take at most 1/20 of the time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use thalweg_client::verdict::{Absence, GrowingLag, LagEvidence};
use thalweg_client::{ClientError, GroupLag};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::groups::GroupLine;
use super::{View, now_ms};

/// Groups with a history. The history with the oldest last point gives way to a new group.
const GROUPS_MAX: usize = 256;
/// Points of a history: ten minutes of a live page.
const POINTS_MAX: usize = 240;
/// The shortest time between two points.
const INTERVAL_MS: i64 = 2000;
/// The shortest time between two readings in the background, and their share of the time.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);
const WATCH_COST: u32 = 20;
/// Time limit of a reading in the background, and for further attempts at a coordinator.
const WATCH_WAIT: Duration = Duration::from_secs(15);
const COORDINATOR_RETRY: Duration = Duration::from_secs(1);

/// The lag of a group at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LagPoint {
    /// Milliseconds since 1970.
    pub at_ms: i64,
    /// Records over all partitions of the group.
    pub lag: i64,
}

/// Histories by group, and the readings in the background.
#[derive(Default)]
pub struct Lags {
    histories: Mutex<HashMap<String, VecDeque<LagPoint>>>,
    watch: Mutex<Watch>,
}

#[derive(Default)]
struct Watch {
    is_reading: bool,
    due: Option<Instant>,
    watched: Option<Result<WatchedGroups, Absence>>,
}

/// The outcome of a reading in the background.
#[derive(Clone, Default)]
struct WatchedGroups {
    /// Watched groups with a known lag.
    groups: Vec<String>,
    /// Watched groups whose offsets cannot be read.
    unknown: usize,
    /// Groups beyond the first [`GROUPS_MAX`].
    unwatched: usize,
}

impl WatchedGroups {
    /// The histories of groups whose lag has become unknown are no evidence.
    fn of(watched: &[String], lags: &BTreeMap<String, GroupLag>, unwatched: usize) -> WatchedGroups {
        let known = lags.iter().filter(|(_, lag)| lag.records().is_some());
        WatchedGroups {
            unknown: watched.len().saturating_sub(lags.len()),
            unwatched,
            groups: known.map(|(group, _)| group.clone()).collect(),
        }
    }
}

impl Lags {
    /// Starts a reading of the lags of the first groups, if one is due and none is running.
    pub fn watch_if_due(&self, view: &Arc<View>) {
        let mut watch = self.watch.lock();
        if watch.is_reading || watch.due.is_some_and(|due| Instant::now() < due) {
            return;
        }
        watch.is_reading = true;
        let view = Arc::clone(view);
        tokio::spawn(async move {
            let began = Instant::now();
            let read = match tokio::time::timeout(WATCH_WAIT, read(&view)).await {
                Ok(read) => read.map_err(|error| Absence::of(&error)),
                Err(_) => Err(Absence::silent(format!("no answer within {} s", WATCH_WAIT.as_secs()))),
            };
            view.lags().end(began, read);
        });
    }

    fn end(&self, began: Instant, read: Result<WatchedGroups, Absence>) {
        let now = Instant::now();
        let mut watch = self.watch.lock();
        watch.is_reading = false;
        watch.due = Some(now + WATCH_INTERVAL.max((now - began) * WATCH_COST));
        watch.watched = Some(read);
    }

    /// The lags of the watched groups, or the reason for their absence; none before the first reading.
    pub fn evidence(&self) -> Option<Result<LagEvidence, Absence>> {
        let watched = match self.watch.lock().watched.clone()? {
            Ok(watched) => watched,
            Err(absence) => return Some(Err(absence)),
        };
        let histories = self.histories.lock();
        let growing = watched.groups.iter().filter_map(|group| {
            let points = histories.get(group)?.iter().map(|point| (point.at_ms, point.lag));
            GrowingLag::find(group, &points.collect::<Vec<_>>())
        });
        let WatchedGroups { unknown, unwatched, .. } = watched;
        Some(Ok(LagEvidence { growing: growing.collect(), unknown, unwatched }))
    }

    /// Adds a point for a group, if it has a lag.
    pub fn note_known(&self, group: &str, lag: GroupLag, at_ms: i64) {
        if let Some(lag) = lag.records() {
            self.note(group, lag, at_ms);
        }
    }

    /// Adds a point for a group.
    pub fn note(&self, group: &str, lag: i64, at_ms: i64) {
        let now = LagPoint { at_ms, lag };
        let mut lags = self.histories.lock();
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
        self.histories.lock().get(group).into_iter().flatten().copied().collect()
    }

    /// Drops all histories.
    pub fn clear(&self) {
        self.histories.lock().clear();
        self.watch.lock().watched = None;
    }
}

/// Notes the lags of the first groups. Share groups have none. Without a view of all topics, no lag is known.
async fn read(view: &View) -> Result<WatchedGroups, ClientError> {
    let (catalog, partial) = tokio::join!(view.groups(), view.partial_view());
    let catalog = catalog?;
    let with_lag = catalog.groups.iter().filter(|group| group.kind != "share");
    let mut with_lag: Vec<&GroupLine> = with_lag.collect();
    let unwatched = with_lag.len().saturating_sub(GROUPS_MAX);
    with_lag.truncate(GROUPS_MAX);
    let groups: Vec<String> = with_lag.iter().map(|group| group.group.clone()).collect();
    if partial.is_some() {
        return Ok(WatchedGroups::of(&groups, &BTreeMap::new(), unwatched));
    }
    let members = view.group_members().of(view, &with_lag).await;
    // A coordinator that does not answer must not use up the time of the others.
    let admin = view.admin().clone().with_timeout(COORDINATOR_RETRY);
    let lags = admin.group_lags(members.iter().map(|(group, read)| (group.as_str(), &**read))).await;
    let at_ms = now_ms();
    for (group, lag) in &lags {
        view.lags().note_known(group, *lag, at_ms);
    }
    Ok(WatchedGroups::of(&groups, &lags, unwatched))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_bounded_and_in_order() {
        let lags = Lags::default();
        for number in 0..1000 {
            lags.note("billing", number, number * 1000);
        }
        let history = lags.history("billing");
        assert_eq!((history.len(), history[POINTS_MAX - 1].lag), (POINTS_MAX, 998), "one in two seconds");
        lags.note("billing", 7, 5);
        lags.note_known("billing", GroupLag::Uncommitted, 9_000);
        assert_eq!(lags.history("billing"), [LagPoint { at_ms: 5, lag: 7 }], "the clock was set back");
        for number in 0..1000 {
            lags.note(&format!("group-{number}"), 1, number + 10);
        }
        assert_eq!(lags.histories.lock().len(), GROUPS_MAX);
        assert!(lags.history("billing").is_empty() && !lags.history("group-999").is_empty());
        lags.clear();
        assert!(lags.history("group-999").is_empty());
    }

    #[test]
    fn a_lag_that_grows_is_evidence_and_a_failed_reading_is_none() {
        let lags = Lags::default();
        assert_eq!(lags.evidence(), None, "nothing has been read");
        for number in 0..60 {
            lags.note("billing", 11_000 + number * 2000, number * 5000);
            lags.note("idle", 0, number * 5000);
        }
        let groups = vec!["billing".to_owned(), "idle".to_owned()];
        let lag = |group: &str, lag| (group.to_owned(), GroupLag::Records { lag, beyond_end: 0 });
        let known = BTreeMap::from([lag("billing", 129_000), lag("idle", 0)]);
        lags.end(Instant::now(), Ok(WatchedGroups::of(&groups, &known, 7)));
        let evidence = lags.evidence().expect("there was a reading").expect("it succeeded");
        assert_eq!(evidence.unwatched, 7, "there are more groups than histories");
        let [billing] = &evidence.growing[..] else { panic!("{evidence:?}") };
        assert_eq!((&*billing.group, billing.from, billing.to), ("billing", 11_000, 129_000));
        lags.end(Instant::now(), Ok(WatchedGroups::of(&groups, &BTreeMap::from([lag("idle", 0)]), 0)));
        let evidence = lags.evidence().expect("there was a reading").expect("it succeeded");
        assert_eq!((evidence.growing, evidence.unknown), (Vec::new(), 1), "the lag has become unknown");
        let mut uncommitted = known.clone();
        uncommitted.insert("billing".to_owned(), GroupLag::Uncommitted);
        lags.end(Instant::now(), Ok(WatchedGroups::of(&groups, &uncommitted, 0)));
        let evidence = lags.evidence().expect("there was a reading").expect("it succeeded");
        assert_eq!((evidence.growing, evidence.unknown), (Vec::new(), 0), "no commit is no fault");
        lags.end(Instant::now(), Err(Absence::silent("no answer")));
        assert!(lags.evidence().is_some_and(|evidence| evidence.is_err()));
    }
}
