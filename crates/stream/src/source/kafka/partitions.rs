//! The partitions to read, matched with the cluster.

use std::time::Duration;

use thalweg_client::{ClientError, Cluster, OffsetSpec, StartAt, TopicPartition};
use thalweg_record::Offset;
use thalweg_wire::ErrorCode;
use tokio::time::{Instant, sleep};

use crate::declaration::Settings;
use crate::kafka::{failed, with_grant, with_headers};
use crate::stage::StageError;
use crate::topics::{self, StartPosition};

/// Timeout for listing topics.
const METADATA_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause before a retry.
const ASKED_AGAIN: Duration = Duration::from_millis(200);

/// The parameters of reading.
pub struct ReadSettings {
    pub topics: Vec<String>,
    /// The group to join, which assigns partitions and start offsets.
    pub group: Option<String>,
    /// The start position without a group.
    pub begin: StartPosition,
    /// The partitions to read; `None` for all.
    chosen: Option<Vec<i32>>,
    /// True if reading stops at the end offsets found at the start.
    pub until_end: bool,
    /// True if headers are kept.
    pub with_headers: bool,
}

impl ReadSettings {
    /// The parameters from the options.
    pub fn of(settings: &Settings) -> ReadSettings {
        ReadSettings {
            topics: settings.text("topics").split(',').map(|topic| topic.trim().to_owned()).collect(),
            group: settings.optional_text("group").map(str::to_owned),
            begin: StartPosition::read(settings.text("from")).unwrap_or(StartPosition::Earliest),
            chosen: settings.optional_text("partitions").and_then(topics::partitions),
            until_end: settings.flag("untilEnd"),
            with_headers: with_headers(settings),
        }
    }

    fn start(&self, partition: i32) -> StartAt {
        match &self.begin {
            StartPosition::Earliest => StartAt::Spec(OffsetSpec::Earliest),
            StartPosition::Latest => StartAt::Spec(OffsetSpec::Latest),
            StartPosition::Timestamp(time_ms) => StartAt::Spec(OffsetSpec::At(*time_ms)),
            StartPosition::Offset(offset) => StartAt::Offset(Offset(*offset)),
            StartPosition::Offsets(offsets) => offsets
                .get(&partition)
                .map_or(StartAt::Spec(OffsetSpec::Earliest), |offset| StartAt::Offset(Offset(*offset))),
        }
    }
}

/// The partitions to read and their start positions. Also checks that all topics exist.
pub async fn find(
    cluster: &Cluster,
    wanted: &ReadSettings,
) -> Result<Vec<(TopicPartition, StartAt)>, StageError> {
    let mut found = Vec::new();
    for topic in &wanted.topics {
        let indexes = partitions_of(cluster, topic).await?;
        for &index in wanted.chosen.as_ref().unwrap_or(&indexes) {
            if !indexes.contains(&index) {
                let reason = format!("it has no partition {index}: use 0 to {}", indexes.len() - 1);
                return Err(failed(format!("Topic {topic}"), reason));
            }
            found.push((TopicPartition::new(topic.as_str(), index), wanted.start(index)));
        }
    }
    Ok(found)
}

async fn partitions_of(cluster: &Cluster, topic: &str) -> Result<Vec<i32>, StageError> {
    let denied = |reason: String| {
        let right = format!("--topic {topic} --allow read");
        failed(format!("Topic {topic}"), with_grant(reason, cluster, &right))
    };
    let until = Instant::now() + METADATA_TIMEOUT;
    loop {
        let reason = match cluster.refresh(&[topic.to_owned()], false).await {
            Ok(metadata) => {
                let known = metadata.topics.get(topic);
                match known.map_or(Some(ErrorCode::UnknownTopicOrPartition), |known| known.error) {
                    None => {
                        let partitions = known.map(|known| &*known.partitions).unwrap_or_default();
                        return Ok(partitions.iter().map(|partition| partition.index).collect());
                    }
                    Some(ErrorCode::UnknownTopicOrPartition) => {
                        return Err(failed(format!("Topic {topic}"), "there is no such topic"));
                    }
                    Some(code) if code.is_retriable() => code.to_string(),
                    Some(code) => return Err(denied(code.to_string())),
                }
            }
            Err(error) if !error.is_retriable() => return Err(denied(error.to_string())),
            Err(error) => unreachable_broker(&error),
        };
        if Instant::now() >= until {
            return Err(failed(format!("Topic {topic}"), reason));
        }
        sleep(ASKED_AGAIN).await;
    }
}

fn unreachable_broker(error: &ClientError) -> String {
    format!("no broker answers ({error})")
}
