//! The log of slow requests: one line each, with the client and the stage that the request waited in.
//!
//! The time of a request ends when its answer is ready, before it is sent. Long polls are excluded: Fetch,
//! ShareFetch, JoinGroup, SyncGroup.

use crate::api::{Call, served};
use std::time::Duration;
use tokio::time::Instant;

/// The target of the lines: Kafka's name for the log of requests.
const TARGET: &str = "kafka.request.logger";

/// The stage that a request waited in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The work of this broker.
    Handling,
    /// The in-sync replicas of a partition.
    Replicas,
    Controller,
    /// An answer of a coordinator, another broker or the disk.
    Answer,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Stage::Handling => "handling",
            Stage::Replicas => "replicas",
            Stage::Controller => "controller",
            Stage::Answer => "answer",
        }
    }

    /// A hint for the operator.
    fn hint(self) -> &'static str {
        match self {
            Stage::Handling => "is the disk or are the processors of this broker busy?",
            Stage::Replicas => {
                "a follower is slow or away: kafka-topics --describe --under-replicated-partitions shows of which partitions"
            }
            Stage::Controller => {
                "the controller is slow or away: kafka-metadata-quorum describe --status shows it"
            }
            Stage::Answer => {
                "a coordinator, another broker or the disk is slow or away: lines near this one name it"
            }
        }
    }
}

/// Logs a request that stayed in a stage longer than `slow_request`.
pub fn note(slow_request: Option<Duration>, call: &Call, stage: Stage, began: Instant) {
    let Some(slow) = slow_request else { return };
    let took = began.elapsed();
    if took < slow || served(call.key).is_some_and(|api| api.waits) {
        return;
    }
    tracing::warn!(
        target: TARGET,
        address = %call.peer.address,
        api = ?call.key,
        version = call.version,
        client_id = call.client_id.as_deref().unwrap_or_default(),
        principal = %call.principal,
        stage = stage.name(),
        ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        hint = stage.hint(),
        "A request took long (thalweg.log.slow.request.ms)"
    );
}
