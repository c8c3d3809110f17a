//! Damaged replicas that leave the in-sync replicas.
//!
//! A leader adds a replica to the in-sync replicas when it fetches at the end of the leader's log. Between a
//! fetch at the old end and the cut of a damaged log this must not happen: the replica would be in sync
//! without the cut records. So fetching stops first. Then the replica is reported as lost: the controller
//! removes it from the ISR, which invalidates earlier proposals of the leader. Then the log is cut, and
//! fetching starts again.
//!
//! Owns: the set of leaving replicas and their progress. Refuses: the steps themselves, which are in
//! `damaged`, `fetcher` and `directories`.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use thalweg_metadata::TopicIdPartition;

/// The progress of a leaving replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaveProgress {
    /// The fetcher has no fetch of the replica in flight, and sends none.
    pub is_quiet: bool,
    /// The image has shown the replica as lost.
    pub is_shown: bool,
}

/// The leaving replicas.
#[derive(Debug, Default)]
pub struct LeavingReplicas(Mutex<BTreeMap<TopicIdPartition, LeaveProgress>>);

impl LeavingReplicas {
    /// Stops fetching a replica.
    pub fn begin(&self, key: TopicIdPartition) {
        self.0.lock().entry(key).or_default();
    }

    /// Allows fetching a replica again.
    pub(super) fn end(&self, key: &TopicIdPartition) {
        self.0.lock().remove(key);
    }

    /// Forgets all replicas but these.
    pub(super) fn retain(&self, keys: &BTreeSet<TopicIdPartition>) {
        self.0.lock().retain(|key, _| keys.contains(key));
    }

    /// The progress of a replica; `None` if it does not leave.
    pub(super) fn get(&self, key: &TopicIdPartition) -> Option<LeaveProgress> {
        self.0.lock().get(key).copied()
    }

    /// The keys of all leaving replicas.
    pub(super) fn keys(&self) -> Vec<TopicIdPartition> {
        self.0.lock().keys().copied().collect()
    }

    /// Notes that no fetch of a replica is in flight. Returns true if that was unknown before.
    pub(super) fn note_quiet(&self, key: &TopicIdPartition) -> bool {
        let mut leaving = self.0.lock();
        leaving.get_mut(key).is_some_and(|leaving| !std::mem::replace(&mut leaving.is_quiet, true))
    }

    /// Notes that the image shows a replica as lost. Returns true if that was unknown before.
    pub(super) fn note_shown(&self, key: &TopicIdPartition) -> bool {
        let mut leaving = self.0.lock();
        leaving.get_mut(key).is_some_and(|leaving| !std::mem::replace(&mut leaving.is_shown, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_metadata::PartitionIndex;
    use thalweg_wire::Uuid;

    #[test]
    fn only_what_leaves_is_noted_and_once() {
        let (key, other) = ((Uuid(7), PartitionIndex(0)), (Uuid(7), PartitionIndex(1)));
        let leaving = LeavingReplicas::default();
        assert!(!leaving.note_quiet(&key) && !leaving.note_shown(&key));
        leaving.begin(key);
        assert!(leaving.note_quiet(&key));
        leaving.begin(key);
        assert!(!leaving.note_quiet(&key), "it has begun before");
        assert_eq!(leaving.get(&key), Some(LeaveProgress { is_quiet: true, is_shown: false }));
        assert!(leaving.note_shown(&key) && !leaving.note_shown(&key));
        leaving.begin(other);
        leaving.retain(&BTreeSet::from([other]));
        assert_eq!((leaving.get(&key), leaving.keys()), (None, vec![other]));
        leaving.end(&other);
        leaving.begin(other);
        assert_eq!(leaving.get(&other), Some(LeaveProgress::default()), "it has been fetched meanwhile");
    }
}
