//! Damaged replicas that give up their places.
//!
//! A leader takes a replica into the in-sync replicas when that fetches at the end of its log. Between a fetch at the old end
//! and the cut of a damaged log this must not happen: the replica would be in sync without what was cut. So a replica that
//! leaves is not fetched, first. Then it is reported as lost: the controller takes it out, and no proposal that its leader
//! made before is valid any more. Then its log is cut, and it is fetched again.
//!
//! Owns: which replicas leave, and how far they are. Refuses: the steps themselves: `damaged`, `fetcher` and `directories`
//! take them.

use crate::isr_changes::PartitionKey;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// How far a replica is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Leaving {
    /// Its fetcher has no fetch of it under way, and sends none.
    pub is_quiet: bool,
    /// The image has shown it as lost.
    pub is_shown: bool,
}

/// The replicas that leave.
#[derive(Debug, Default)]
pub struct LeavingReplicas(Mutex<BTreeMap<PartitionKey, Leaving>>);

impl LeavingReplicas {
    /// A replica is not fetched from now on.
    pub fn begin(&self, key: PartitionKey) {
        self.0.lock().entry(key).or_default();
    }

    /// A replica may be fetched again.
    pub(super) fn end(&self, key: &PartitionKey) {
        self.0.lock().remove(key);
    }

    /// Forgets all but these.
    pub(super) fn retain(&self, keys: &BTreeSet<PartitionKey>) {
        self.0.lock().retain(|key, _| keys.contains(key));
    }

    /// How far a replica is, if it leaves.
    pub(super) fn get(&self, key: &PartitionKey) -> Option<Leaving> {
        self.0.lock().get(key).copied()
    }

    /// All of them.
    pub(super) fn keys(&self) -> Vec<PartitionKey> {
        self.0.lock().keys().copied().collect()
    }

    /// No fetch of a replica is under way. Returns whether that is news.
    pub(super) fn note_quiet(&self, key: &PartitionKey) -> bool {
        let mut leaving = self.0.lock();
        leaving.get_mut(key).is_some_and(|leaving| !std::mem::replace(&mut leaving.is_quiet, true))
    }

    /// The image shows a replica as lost. Returns whether that is news.
    pub(super) fn note_shown(&self, key: &PartitionKey) -> bool {
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
        assert_eq!(leaving.get(&key), Some(Leaving { is_quiet: true, is_shown: false }));
        assert!(leaving.note_shown(&key) && !leaving.note_shown(&key));
        leaving.begin(other);
        leaving.retain(&BTreeSet::from([other]));
        assert_eq!((leaving.get(&key), leaving.keys()), (None, vec![other]));
        leaving.end(&other);
        leaving.begin(other);
        assert_eq!(leaving.get(&other), Some(Leaving::default()), "it has been fetched meanwhile");
    }
}
