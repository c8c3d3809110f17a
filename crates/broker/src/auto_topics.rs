//! Topics being created automatically, and the outcome of recent attempts.

use parking_lot::Mutex;
use std::time::Duration;
use thalweg_hash::{HashMap, HashSet};
use thalweg_metadata::topic_name::{self, OFFSETS, SHARE_STATE, TRANSACTIONS};
use tokio::time::Instant;

/// How often the same failure is logged: clients ask again a few times a second, for as long as it lasts.
const LOGGED_EVERY: Duration = Duration::from_secs(60);
/// Topics of clients that may be in creation at once; clients ask again for the others.
const IN_CREATION_MAX: usize = 10_000;
/// Topics whose failure is remembered. Beyond that the one that is to be forgotten first is.
const REFUSALS_MAX: usize = 1_000;

/// The topics that are being created, so that many requests for one create it once.
#[derive(Debug, Default)]
pub struct AutoTopics {
    in_creation: Mutex<HashSet<String>>,
    failures: Mutex<HashMap<&'static str, Failure>>,
    /// Internal topics of streams groups that could not be created.
    refusals: Mutex<HashMap<String, Refusal>>,
}

/// Why a topic could not be created, for as long as its group hears of it.
#[derive(Debug)]
struct Refusal {
    reason: String,
    until: Instant,
}

/// Topics of a kind whose last creation failed.
#[derive(Debug)]
struct Failure {
    logged_at: Instant,
    reason: String,
    /// How often it has failed since it was logged.
    omitted: u64,
}

/// Topics being created. The creating task may be dropped with its connection, or end in a panic; the next request must find them
/// free then.
pub struct Creation<'a> {
    topics: &'a AutoTopics,
    pub names: Vec<String>,
}

impl AutoTopics {
    /// Claims those of the topics that are not being created already, as many of clients as there is room for.
    pub fn begin(&self, names: &[String]) -> Creation<'_> {
        let mut in_creation = self.in_creation.lock();
        let mut claim = |name: &&String| {
            (in_creation.len() < IN_CREATION_MAX || topic_name::is_of_coordinators(name))
                && in_creation.insert((*name).clone())
        };
        let names = names.iter().filter(&mut claim).cloned().collect();
        Creation { topics: self, names }
    }

    /// Records a failure. It is logged if it is new, has another reason than before, or lasts: with the number of
    /// omitted ones.
    pub fn failed(&self, kind: &'static str, reason: &str, now: Instant) -> Option<u64> {
        let mut failures = self.failures.lock();
        let before = failures.get_mut(kind);
        if let Some(before) = before
            && before.reason == reason
            && now.duration_since(before.logged_at) < LOGGED_EVERY
        {
            before.omitted += 1;
            return None;
        }
        let new = Failure { logged_at: now, reason: reason.to_owned(), omitted: 0 };
        let omitted = failures.insert(kind, new).map_or(0, |before| before.omitted);
        Some(omitted)
    }

    /// Remembers until then why a topic could not be created.
    pub fn refuse(&self, name: String, reason: String, now: Instant, until: Instant) {
        let mut refusals = self.refusals.lock();
        if refusals.len() >= REFUSALS_MAX {
            refusals.retain(|_, refusal| refusal.until > now);
        }
        if refusals.len() >= REFUSALS_MAX {
            let first = refusals.iter().min_by_key(|(_, refusal)| refusal.until);
            let first = first.map(|(name, _)| name.clone());
            first.and_then(|name| refusals.remove(&name));
        }
        refusals.insert(name, Refusal { reason, until });
    }

    /// Why a topic could not be created lately.
    pub fn refusal(&self, name: &str, now: Instant) -> Option<String> {
        let mut refusals = self.refusals.lock();
        let refusal = refusals.get(name)?;
        if refusal.until > now {
            return Some(refusal.reason.clone());
        }
        refusals.remove(name);
        None
    }

    /// Records a success. Returns whether the previous attempts failed.
    pub fn succeeded(&self, kind: &'static str) -> bool {
        self.failures.lock().remove(kind).is_some()
    }
}

/// Topics that fail alike: each of the coordinators' own, and all of clients.
pub fn kind(name: &str) -> &'static str {
    match name {
        OFFSETS => OFFSETS,
        TRANSACTIONS => TRANSACTIONS,
        SHARE_STATE => SHARE_STATE,
        _ => "of clients",
    }
}

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        let mut in_creation = self.topics.in_creation.lock();
        for name in &self.names {
            in_creation.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_creation_that_is_dropped_leaves_its_topics_free() {
        let topics = AutoTopics::default();
        let names = [OFFSETS.to_owned(), "t".to_owned()];
        let first = topics.begin(&names[..1]);
        assert_eq!(topics.begin(&names).names, ["t"], "the other is being created");
        drop(first);
        assert_eq!(topics.begin(&names).names, names);
    }

    #[test]
    fn topics_of_clients_in_creation_are_bounded() {
        let topics = AutoTopics::default();
        let names: Vec<String> = (0..IN_CREATION_MAX + 5).map(|index| format!("t-{index}")).collect();
        let first = topics.begin(&names);
        assert_eq!(first.names.len(), IN_CREATION_MAX);
        assert_eq!(topics.begin(&[OFFSETS.to_owned(), "u".to_owned()]).names, [OFFSETS], "of this broker");
        drop(first);
        assert_eq!(topics.begin(&names[IN_CREATION_MAX..]).names.len(), 5);
    }

    #[test]
    fn a_refusal_is_told_for_its_time_and_the_number_is_bounded() {
        let (topics, now) = (AutoTopics::default(), Instant::now());
        let until = |ms| now + Duration::from_millis(ms);
        for index in 0..2_000 {
            topics.refuse(format!("t-{index}"), "no right".to_owned(), now, until(1_000 + index));
        }
        assert_eq!(topics.refusals.lock().len(), REFUSALS_MAX);
        assert_eq!(topics.refusal("t-0", now), None, "it made room");
        assert_eq!(topics.refusal("t-1999", now).as_deref(), Some("no right"));
        assert_eq!(topics.refusal("t-1999", until(3_000)), None, "it is over");
    }

    #[test]
    fn a_failure_that_lasts_is_logged_once_a_minute() {
        let (topics, began) = (AutoTopics::default(), Instant::now());
        let logged =
            |kind, reason, after_ms| topics.failed(kind, reason, began + Duration::from_millis(after_ms));
        assert_eq!(logged(OFFSETS, "too few brokers", 0), Some(0));
        assert_eq!(logged(TRANSACTIONS, "too few brokers", 0), Some(0), "another topic");
        let repeated = (1..120).filter_map(|half| logged(OFFSETS, "too few brokers", half * 500));
        assert_eq!(repeated.count(), 0);
        assert_eq!(logged(OFFSETS, "too few brokers", 60_000), Some(119));
        assert_eq!(logged(OFFSETS, "another reason", 60_500), Some(0));
        assert!(topics.succeeded(OFFSETS) && !topics.succeeded(OFFSETS));
        assert_eq!(logged(OFFSETS, "too few brokers", 61_000), Some(0), "it worked meanwhile");
    }
}
