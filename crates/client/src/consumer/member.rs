//! The task of a member of a group: joins, gets partitions, and keeps the session alive, until the consumer
//! leaves. There is a module for each protocol of consumer groups: with `classic` the members assign the
//! partitions, with `consumer` the coordinator does (KIP-848). Both produce the same events.

mod classic;
mod consumer;

use std::sync::Arc;
use std::time::Duration;

use thalweg_dial::ClientError;
use tokio::task::JoinSet;

use super::membership::Membership;
use super::{ConsumerConfig, GroupProtocol};
use crate::cluster::Cluster;
use crate::coordinator::Coordinator;

/// Starts the task of a member, with the configured protocol.
pub(super) fn start(
    task: &mut JoinSet<Result<(), ClientError>>,
    cluster: Cluster,
    config: Arc<ConsumerConfig>,
    coordinator: Arc<Coordinator>,
    membership: Arc<Membership>,
) {
    match config.group_protocol {
        GroupProtocol::Classic => {
            task.spawn(classic::ClassicGroupMember::new(cluster, config, coordinator, membership).run())
        }
        GroupProtocol::Consumer => {
            task.spawn(consumer::ConsumerGroupMember::new(cluster, config, coordinator, membership).run())
        }
    };
}

fn warn_of_stall(config: &ConsumerConfig, membership: &Membership) {
    let interval_ms = config.rebalance_timeout.as_millis();
    tracing::warn!(
        group = membership.metadata().group,
        "Not polled for max.poll.interval.ms={interval_ms}; the member leaves until it is"
    );
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
