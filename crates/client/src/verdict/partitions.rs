//! The state of partitions, by the numbers of their replicas.

use super::{Fault, Verdict};

/// The numbers that decide on the state of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionState {
    /// True if the partition has a leader that answers.
    pub has_leader: bool,
    /// Assigned replicas, including replicas that a reassignment adds.
    pub replicas: usize,
    /// Replicas that a reassignment adds.
    pub adding: usize,
    /// In-sync replicas on brokers that answer.
    pub in_sync: usize,
    /// `min.insync.replicas` of the topic, if visible.
    pub min_isr: Option<usize>,
}

impl PartitionState {
    /// True if a replica is missing that no reassignment adds.
    pub fn is_under_replicated(&self) -> bool {
        self.in_sync + self.adding < self.replicas
    }

    /// True if producers with acks=all are refused; none if that is unknown. The number of replicas limits
    /// the minimum, as in Kafka, so that the minimum matters only where a replica is missing.
    pub fn is_under_min_isr(&self) -> Option<bool> {
        if self.in_sync >= self.replicas {
            return Some(false);
        }
        self.min_isr.map(|min| self.in_sync < min.min(self.replicas))
    }

    /// True if a replica is missing, and the partition accepts acks=all with just the minimum in sync.
    pub fn is_at_min_isr(&self) -> bool {
        self.has_leader
            && self.is_under_replicated()
            && self.min_isr.is_some_and(|min| self.in_sync == min.min(self.replicas))
    }
}

/// The number of partitions in each state. A partition may be in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionCounts {
    /// The visible partitions.
    pub total: usize,
    /// Partitions without a leader that answers.
    pub offline: usize,
    pub under_replicated: usize,
    pub under_min_isr: usize,
    pub at_min_isr: usize,
    /// Partitions with missing replicas whose `min.insync.replicas` is unknown.
    pub min_isr_unknown: usize,
}

impl PartitionCounts {
    /// Counts a partition.
    pub fn add(&mut self, state: &PartitionState) {
        self.total += 1;
        self.offline += usize::from(!state.has_leader);
        self.under_replicated += usize::from(state.is_under_replicated());
        self.under_min_isr += usize::from(state.is_under_min_isr() == Some(true));
        self.at_min_isr += usize::from(state.is_at_min_isr());
        self.min_isr_unknown += usize::from(state.is_under_min_isr().is_none());
    }

    pub(super) fn judge(&self) -> Vec<Verdict> {
        let of_all = |count: usize| format!("{count} of {} partitions", self.total);
        let have = |count: usize| if count == 1 { "has" } else { "have" };
        let found = |fault, count: usize, fact: &str| {
            let text = format!("{} {} {fact}.", of_all(count), have(count));
            (count > 0).then_some(Verdict { fault, text })
        };
        let unknown = (self.min_isr_unknown > 0).then(|| Verdict {
            fault: Fault::MinIsrUnknown,
            text: format!(
                "{} may refuse acks=all: replicas are missing, and min.insync.replicas is not visible to this \
                 login.",
                of_all(self.min_isr_unknown)
            ),
        });
        [
            found(
                Fault::PartitionsOffline,
                self.offline,
                "no leader that answers: producers and consumers wait until a replica in sync is back",
            ),
            found(
                Fault::PartitionsUnderMinIsr,
                self.under_min_isr,
                "fewer replicas in sync than min.insync.replicas: producers with acks=all are refused",
            ),
            found(
                Fault::PartitionsAtMinIsr,
                self.at_min_isr,
                "just min.insync.replicas in sync: the next failure stops producers with acks=all",
            ),
            found(
                Fault::PartitionsUnderReplicated,
                self.under_replicated,
                "fewer replicas in sync than assigned: fewer failures are survived",
            ),
            unknown,
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
