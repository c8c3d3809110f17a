//! Requests that take long: one line each, with the client, and what the request waited for.
//!
//! The time of a request is from its bytes to its answer, without the time to send that. What waits by its nature is left out:
//! a fetch for records, a member for its group.

use crate::api::{Call, served};
use std::time::Duration;
use tokio::time::Instant;

/// The target of the lines: Kafka's name for the log of requests.
const TARGET: &str = "kafka.request.logger";

/// What a request has waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The work of this broker.
    Handling,
    /// The in-sync replicas of a partition.
    Replicas,
    /// The controller.
    Controller,
    /// An answer that is made away from the connection's task: of a coordinator, of another broker, of the disk.
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

    /// Where to look.
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

/// Logs a request that was at a stage for longer than requests should take.
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
