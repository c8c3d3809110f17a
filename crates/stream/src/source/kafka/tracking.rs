//! The partitions of a source for stages that track them: which are read, and which were read to the end.
//! Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_client::TopicPartition;

use crate::message::{AssignedPartition, Provenance, SourceId};

/// The partitions being read.
pub struct Tracking {
    source: SourceId,
    /// True if messages of revoked partitions come again, unless they were acknowledged.
    repeats: bool,
    /// The numbers of all partitions that were ever read.
    numbers: BTreeMap<TopicPartition, u32>,
    states: BTreeMap<TopicPartition, State>,
    /// The same for stages; renewed at changes.
    assigned: Arc<[AssignedPartition]>,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// True after the first records or the discovery that there are none.
    is_known: bool,
    is_at_end: bool,
}

impl Tracking {
    /// The state of a source that reads no partition yet.
    pub fn new(source: SourceId, repeats: bool) -> Tracking {
        let assigned = Arc::new([]);
        Tracking { source, repeats, numbers: BTreeMap::new(), states: BTreeMap::new(), assigned }
    }

    /// Sets the partitions.
    pub fn assign(&mut self, partitions: impl IntoIterator<Item = TopicPartition>) -> Provenance {
        let before = std::mem::take(&mut self.states);
        self.states = partitions
            .into_iter()
            .map(|at| {
                let state = before.get(&at).copied().unwrap_or_default();
                (at, state)
            })
            .collect();
        self.renew()
    }

    /// Removes partitions, which have no further records.
    pub fn remove(&mut self, partitions: &[TopicPartition]) -> Provenance {
        self.states.retain(|at, _| !partitions.contains(at));
        self.renew()
    }

    /// Removes partitions that the group has revoked.
    pub fn revoke(&mut self, partitions: &[TopicPartition]) -> Provenance {
        let provenance = self.remove(partitions);
        let numbers = || partitions.iter().filter_map(|at| self.numbers.get(at).copied());
        Provenance { revoked: self.repeats.then(|| numbers().collect()), ..provenance }
    }

    /// Notes records of a partition, up to its end or not.
    pub fn read(&mut self, at: &TopicPartition, is_at_end: bool) -> Provenance {
        if let Some(state) = self.states.get_mut(at) {
            *state = State { is_known: true, is_at_end };
        }
        let number = self.number(at);
        Provenance { partition: Some(number), is_at_end, ..self.provenance() }
    }

    /// The partitions of which it is not known whether they have records.
    pub fn unknown(&self) -> impl Iterator<Item = &TopicPartition> {
        self.states.iter().filter(|(_, state)| !state.is_known).map(|(at, _)| at)
    }

    /// True if some partition is known to have records, or to have none.
    pub fn has_known(&self) -> bool {
        self.states.values().any(|state| state.is_known)
    }

    /// Notes that the source does not reach all partitions: further records are not known.
    pub fn doubt(&mut self) -> Provenance {
        self.states.values_mut().for_each(|state| *state = State::default());
        self.renew()
    }

    /// Notes partitions that have no records to read.
    pub fn found_empty(&mut self, partitions: &[TopicPartition]) -> Provenance {
        for at in partitions {
            if let Some(state) = self.states.get_mut(at) {
                *state = State { is_known: true, is_at_end: true };
            }
        }
        self.renew()
    }

    fn number(&mut self, at: &TopicPartition) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(at.clone()).or_insert(next)
    }

    fn renew(&mut self) -> Provenance {
        let states: Vec<(TopicPartition, State)> =
            self.states.iter().map(|(at, state)| (at.clone(), *state)).collect();
        self.assigned = states
            .into_iter()
            .map(|(at, state)| {
                let partition = self.number(&at);
                AssignedPartition { partition, at: Some(at), is_at_end: state.is_at_end }
            })
            .collect();
        self.provenance()
    }

    fn provenance(&self) -> Provenance {
        let assigned = self.assigned.clone();
        let revoked = self.repeats.then(|| Arc::new([]) as Arc<[u32]>);
        Provenance {
            source: self.source,
            partition: None,
            is_at_end: false,
            has_ends: true,
            assigned,
            revoked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_keep_their_numbers_and_their_ends() {
        let at = |partition| TopicPartition::new("t", partition);
        let listed = |provenance: &Provenance| {
            provenance.assigned.iter().map(|a| (a.partition, a.is_at_end)).collect::<Vec<_>>()
        };
        let mut tracking = Tracking::new(SourceId::unique(), true);
        assert_eq!(listed(&tracking.assign([at(0), at(1), at(2)])), [(0, false), (1, false), (2, false)]);
        let read = tracking.read(&at(1), true);
        assert_eq!((read.partition, read.is_at_end), (Some(1), true));
        assert_eq!(tracking.unknown().cloned().collect::<Vec<_>>(), [at(0), at(2)]);
        assert_eq!(listed(&tracking.found_empty(&[at(2)])), [(0, false), (1, true), (2, true)]);
        let revoked = tracking.revoke(&[at(0), at(9)]);
        assert_eq!(
            (listed(&revoked), revoked.revoked.as_deref()),
            (vec![(1, true), (2, true)], Some(&[0][..]))
        );
        assert_eq!(tracking.read(&at(1), true).revocable().map(|(_, partition)| partition), Some(1));
        assert_eq!(listed(&tracking.assign([at(3), at(0), at(1)])), [(0, false), (1, true), (3, false)]);
        assert_eq!(tracking.unknown().count(), 2);
        assert!(tracking.has_known());
        assert_eq!(listed(&tracking.doubt()), [(0, false), (1, false), (3, false)]);
        assert!(!tracking.has_known());
    }
}
