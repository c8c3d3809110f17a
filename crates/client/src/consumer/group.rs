//! A consumer in a group: the task of its member, and the start and end of polls.

use std::sync::Arc;

use thalweg_dial::ClientError;
use tokio::task::JoinSet;

use super::ConsumerConfig;
use super::member;
use super::membership::{Membership, SubscribedTopics};
use crate::cluster::Cluster;
use crate::coordinator::Coordinator;
use crate::offsets::GroupMetadata;

/// A guard for the duration of a poll.
pub(super) struct PollGuard(Option<Arc<Membership>>);

impl PollGuard {
    /// Begins a poll; also returns true if the poll releases revoked partitions.
    pub(super) fn begin(group: Option<&Group>) -> (PollGuard, bool) {
        let membership = group.map(|group| Arc::clone(&group.membership));
        let releases = membership.as_ref().is_some_and(|membership| membership.begin_poll());
        (PollGuard(membership), releases)
    }
}

impl Drop for PollGuard {
    fn drop(&mut self) {
        if let Some(membership) = &self.0 {
            membership.end_poll();
        }
    }
}

/// A consumer's membership in a group, with its task. Dropping it ends the task.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) membership: Arc<Membership>,
    task: JoinSet<Result<(), ClientError>>,
}

impl Group {
    /// Joins the group with a subscription to these topics.
    pub(super) fn join(
        cluster: Cluster,
        config: Arc<ConsumerConfig>,
        coordinator: Arc<Coordinator>,
        topics: SubscribedTopics,
    ) -> Group {
        let metadata = GroupMetadata {
            group_instance_id: config.group_instance_id.clone(),
            ..GroupMetadata::without_member(coordinator.key().to_owned())
        };
        let membership = Arc::new(Membership::new(metadata, topics));
        let mut task = JoinSet::new();
        member::start(&mut task, cluster, config, coordinator, Arc::clone(&membership));
        Group { membership, task }
    }

    /// Leaves the group, so that other members need not wait for the session timeout.
    pub(super) async fn leave(mut self) -> Result<(), ClientError> {
        self.membership.leave();
        match self.task.join_next().await {
            Some(Ok(left)) => left,
            Some(Err(failure)) if failure.is_panic() => std::panic::resume_unwind(failure.into_panic()),
            Some(Err(_)) | None => Ok(()),
        }
    }
}
