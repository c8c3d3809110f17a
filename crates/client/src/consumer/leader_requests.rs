//! Requests of a consumer to the leaders of its partitions: for offsets, and for the ends of leader epochs.
//! Each runs in a task, so that a leader that does not answer delays no partition of another.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use thalweg_dial::ClientError;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::assignment::PositionCheck;
use super::validation::{Ends, ends_of_epochs};
use crate::cluster::{Cluster, SILENCE};
use crate::offsets::{ListedOffset, OffsetSpec, TopicPartition};

/// A partition whose position is to be found or compared, with the version of the position.
pub(super) type VersionedPartition = (TopicPartition, u64);

/// A position to find.
#[derive(Clone, Debug)]
pub(super) struct OffsetQuery {
    pub(super) at: TopicPartition,
    pub(super) version: u64,
    pub(super) spec: OffsetSpec,
}

/// The answer of a leader, or the failure of the request.
#[derive(Debug)]
pub(super) enum LeaderAnswer {
    Offsets(Vec<OffsetQuery>, BTreeMap<TopicPartition, Result<ListedOffset, ClientError>>),
    /// `None` if the leader is too old to know the ends of epochs.
    Ends(Vec<PositionCheck>, Result<Option<Ends>, ClientError>),
}

/// The requests without an answer.
#[derive(Debug, Default)]
pub(super) struct LeaderRequests {
    tasks: JoinSet<(Option<i32>, LeaderAnswer)>,
    /// The partitions of these requests by leader, with the time of the request. None is requested twice.
    pending: BTreeMap<(Option<i32>, VersionedPartition), Instant>,
}

impl LeaderRequests {
    /// Requests these positions from the leaders in the metadata.
    pub(super) fn find(&mut self, cluster: &Cluster, queries: Vec<OffsetQuery>, read_committed: bool) {
        let metadata = cluster.metadata();
        let mut by_leader: BTreeMap<Option<i32>, Vec<OffsetQuery>> = BTreeMap::new();
        for query in queries {
            let leader = metadata.leader(&query.at.topic, query.at.partition);
            if self.is_new(leader, &query.at, query.version) {
                by_leader.entry(leader).or_default().push(query);
            }
        }
        for (leader, queries) in by_leader {
            let cluster = cluster.clone();
            self.tasks.spawn(async move {
                let wanted = queries.iter().map(|query| (query.at.clone(), query.spec)).collect();
                let found = cluster.list_offsets_of(leader, wanted, read_committed).await;
                (leader, LeaderAnswer::Offsets(queries, found))
            });
        }
    }

    /// Requests the ends of the epochs of these positions.
    pub(super) fn compare(&mut self, cluster: &Cluster, checks: Vec<PositionCheck>) {
        let mut by_leader: BTreeMap<i32, Vec<PositionCheck>> = BTreeMap::new();
        for check in checks {
            if self.is_new(Some(check.leader), &check.at, check.version) {
                by_leader.entry(check.leader).or_default().push(check);
            }
        }
        for (leader, checks) in by_leader {
            let cluster = cluster.clone();
            self.tasks.spawn(async move {
                let ends = ends_of_epochs(&cluster, leader, &checks).await;
                (Some(leader), LeaderAnswer::Ends(checks, ends))
            });
        }
    }

    /// True if a leader's answer is late: another broker may lead by now.
    pub(super) fn is_late(&self) -> bool {
        self.pending.values().any(|requested_at| requested_at.elapsed() >= SILENCE)
    }

    /// Notes a request, unless there is one without an answer.
    fn is_new(&mut self, leader: Option<i32>, at: &TopicPartition, version: u64) -> bool {
        match self.pending.entry((leader, (at.clone(), version))) {
            Entry::Vacant(entry) => {
                entry.insert(Instant::now());
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// The next answer; waits for ever if nothing was requested. The future can be dropped.
    pub(super) async fn next(&mut self) -> LeaderAnswer {
        let Some(answered) = self.tasks.join_next().await else { return std::future::pending().await };
        let (leader, answer) = answered.expect("a request neither panics nor is cancelled");
        let mut answered = |at: &TopicPartition, version| {
            self.pending.remove(&(leader, (at.clone(), version)));
        };
        match &answer {
            LeaderAnswer::Offsets(queries, _) => {
                queries.iter().for_each(|query| answered(&query.at, query.version));
            }
            LeaderAnswer::Ends(checks, _) => {
                checks.iter().for_each(|check| answered(&check.at, check.version));
            }
        }
        answer
    }
}
