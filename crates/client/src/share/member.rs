//! The task of a member of a share group (KIP-932): joins by ShareGroupHeartbeat, keeps the session alive,
//! and reports the assigned partitions, with names. Members share partitions, so there is no revocation.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use thalweg_dial::{Backoff, ClientError, RefusedRequest};
use thalweg_watch as watch;
use thalweg_wire::request::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
use thalweg_wire::{ErrorCode, Uuid};
use tokio::time::Instant;

use super::ShareConfig;
use crate::cluster::Cluster;
use crate::coordinator::Coordinator;
use crate::offsets::TopicIdPartition;

/// The epoch of a heartbeat that joins.
const JOINS: i32 = 0;
/// The epoch of a heartbeat that leaves.
const LEAVES: i32 = -1;
/// The remedy if brokers do not serve the request.
pub(super) const NEEDS: &str =
    "share groups need brokers of Kafka 4.2 or later with share.version=1 (KIP-932)";

/// The consumer's request to its member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) topics: Vec<String>,
    pub(super) leaves: bool,
}

/// The coordinator's assignment.
#[derive(Clone, Debug, Default)]
pub(super) struct ShareAssignment {
    pub(super) partitions: Arc<BTreeSet<TopicIdPartition>>,
    /// The number of refusals so far, and the last transient one.
    pub(super) refused: Option<(u64, ClientError)>,
    /// Why the member cannot continue.
    pub(super) failure: Option<ClientError>,
}

/// A member of a share group.
pub(super) struct ShareGroupMember {
    cluster: Cluster,
    config: Arc<ShareConfig>,
    coordinator: Coordinator,
    wish: watch::Receiver<Wish>,
    assigned: watch::Sender<ShareAssignment>,
    /// The member id, chosen by the member for the life of the consumer.
    id: String,
    epoch: i32,
    /// True if a join was sent, so that the coordinator may know the member.
    has_joined: bool,
    /// The topics known to the coordinator; `None` if uncertain.
    known: Option<Vec<String>>,
    beat_at: Instant,
    backoff: Backoff,
}

impl ShareGroupMember {
    pub(super) fn new(
        cluster: Cluster,
        config: Arc<ShareConfig>,
        coordinator: Coordinator,
        id: String,
        wish: watch::Receiver<Wish>,
        assigned: watch::Sender<ShareAssignment>,
    ) -> ShareGroupMember {
        let backoff = Backoff::new(config.retry_backoff);
        ShareGroupMember {
            cluster,
            config,
            coordinator,
            wish,
            assigned,
            id,
            epoch: JOINS,
            has_joined: false,
            known: None,
            beat_at: Instant::now(),
            backoff,
        }
    }

    /// Runs until the consumer leaves or is dropped.
    pub(super) async fn run(mut self) -> Result<(), ClientError> {
        loop {
            if self.wish.borrow_and_update().leaves {
                return Box::pin(self.leave()).await;
            }
            if self.known.as_ref().is_some_and(|known| *known != self.wish.borrow().topics) {
                self.beat_at = Instant::now();
            }
            tokio::select! {
                biased;
                wish = self.wish.changed(), if self.beat_at > Instant::now() => match wish {
                    Ok(()) => continue,
                    Err(_) => return Ok(()),
                },
                () = tokio::time::sleep_until(self.beat_at) => {}
            }
            let Err(error) = self.beat().await else { continue };
            match error.error_code() {
                Some(ErrorCode::FencedMemberEpoch | ErrorCode::UnknownMemberId) => {
                    // Without this pause, a coordinator that refuses every join would receive joins in a busy
                    // loop.
                    let pause = if self.epoch == JOINS { self.backoff.next_pause() } else { Duration::ZERO };
                    self.epoch = JOINS;
                    self.assign(Arc::default());
                    self.beat_at = Instant::now() + pause;
                }
                // The member stays in the group, and continues once it has the right to describe the topic.
                Some(ErrorCode::TopicAuthorizationFailed) => {
                    self.report(&error);
                    self.retry(&error);
                }
                Some(ErrorCode::CoordinatorLoadInProgress) => self.retry(&error),
                _ if error.is_retriable() => {
                    self.coordinator.forget();
                    self.retry(&error);
                }
                _ => {
                    let what = format!("Heartbeat of share group {}", self.config.group);
                    let failure = Some(error.if_unserved(what, NEEDS));
                    self.assigned.send_replace(ShareAssignment { failure, ..ShareAssignment::default() });
                    return Ok(());
                }
            }
            self.known = None;
        }
    }

    fn assign(&self, partitions: Arc<BTreeSet<TopicIdPartition>>) {
        self.assigned.send_if_modified(|assigned| {
            assigned.partitions = partitions;
            true
        });
    }

    /// Passes an error to the consumer; the member stays in its group.
    fn report(&self, error: &ClientError) {
        self.assigned.send_if_modified(|assigned| {
            let earlier = assigned.refused.as_ref().map_or(0, |(count, _)| *count);
            assigned.refused = Some((earlier + 1, error.clone()));
            true
        });
    }

    fn retry(&mut self, error: &ClientError) {
        self.config.connection.failed("group", error);
        tracing::debug!(%error, "Heartbeat failed, sending another");
        self.beat_at = Instant::now() + self.backoff.next_pause();
    }

    async fn beat(&mut self) -> Result<(), ClientError> {
        let connection = self.coordinator.connection().await?;
        let topics = self.wish.borrow().topics.clone();
        let is_new = self.known.is_none();
        let request = ShareGroupHeartbeatRequest {
            group_id: self.config.group.clone(),
            member_id: self.id.clone(),
            member_epoch: self.epoch,
            rack_id: self.config.rack.clone().filter(|_| is_new),
            subscribed_topic_names: (self.known.as_ref() != Some(&topics)).then(|| topics.clone()),
        };
        self.has_joined = true;
        let response = connection.send(&request).await?;
        self.check(&response)?;
        self.known = Some(topics);
        self.epoch = response.member_epoch;
        self.beat_at = self.cluster.next_beat(response.heartbeat_interval_ms, self.config.retry_backoff);
        if let Some(assignment) = response.assignment {
            let partitions = assignment.topic_partitions.into_iter().flat_map(|topic| {
                let id = topic.topic_id;
                topic.partitions.into_iter().map(move |partition| (id, partition))
            });
            self.assign(Arc::new(partitions.collect()));
        }
        Ok(())
    }

    fn check(&self, response: &ShareGroupHeartbeatResponse) -> Result<(), ClientError> {
        let message = response.error_message.as_deref();
        let what = || format!("Heartbeat of share group {}", self.config.group);
        Ok(RefusedRequest::check(response.error_code, message, what)?)
    }

    /// Leaves the group. Without an answer, the session times out at the coordinator.
    async fn leave(&mut self) -> Result<(), ClientError> {
        if !self.has_joined {
            return Ok(());
        }
        let request = ShareGroupHeartbeatRequest {
            group_id: self.config.group.clone(),
            member_id: self.id.clone(),
            member_epoch: LEAVES,
            ..ShareGroupHeartbeatRequest::default()
        };
        let connection = self.coordinator.connection().await?;
        let left = self.check(&connection.send(&request).await?);
        let is_gone = |code| matches!(code, ErrorCode::UnknownMemberId | ErrorCode::GroupIdNotFound);
        match left {
            Err(error) if !error.error_code().is_some_and(is_gone) => Err(error),
            _ => Ok(()),
        }
    }
}

/// The topic ids in a list of partitions.
pub(super) fn ids(partitions: &BTreeSet<TopicIdPartition>) -> BTreeSet<Uuid> {
    partitions.iter().map(|(id, _)| *id).collect()
}
