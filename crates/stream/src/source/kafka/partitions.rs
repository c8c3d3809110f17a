//! What a source is to read, and the partitions that the cluster has of it.

use std::time::Duration;

use thalweg_client::{ClientError, Cluster, OffsetSpec, StartAt, TopicPartition};
use thalweg_record::Offset;
use thalweg_wire::ErrorCode;
use tokio::time::{Instant, sleep};

use crate::declaration::Settings;
use crate::kafka::{failed, with_headers};
use crate::stage::StageError;
use crate::topics::{self, Begin};

/// How long a cluster may take to say which topics it has.
const METADATA_TIMEOUT: Duration = Duration::from_secs(15);
/// The pause before it is asked again.
const ASKED_AGAIN: Duration = Duration::from_millis(200);

/// What is to be read.
pub struct Wanted {
    /// The topics.
    pub topics: Vec<String>,
    /// As a member of a consumer group, which says which partitions, and where to begin.
    pub in_group: bool,
    /// Where to begin otherwise.
    pub begin: Begin,
    /// The partitions, if not all.
    chosen: Option<Vec<i32>>,
    /// Up to where they end when reading begins.
    pub until_end: bool,
    /// Whether headers are carried.
    pub with_headers: bool,
}

impl Wanted {
    /// What the options say.
    pub fn of(settings: &Settings) -> Wanted {
        Wanted {
            topics: settings.text("topics").split(',').map(|topic| topic.trim().to_owned()).collect(),
            in_group: settings.optional_text("group").is_some(),
            begin: Begin::read(settings.text("from")).unwrap_or(Begin::Earliest),
            chosen: settings.optional_text("partitions").and_then(topics::partitions),
            until_end: settings.flag("untilEnd"),
            with_headers: with_headers(settings),
        }
    }

    fn start(&self, partition: i32) -> StartAt {
        match &self.begin {
            Begin::Earliest => StartAt::Spec(OffsetSpec::Earliest),
            Begin::Latest => StartAt::Spec(OffsetSpec::Latest),
            Begin::Timestamp(time_ms) => StartAt::Spec(OffsetSpec::At(*time_ms)),
            Begin::Offset(offset) => StartAt::Offset(Offset(*offset)),
            Begin::Offsets(offsets) => offsets
                .get(&partition)
                .map_or(StartAt::Spec(OffsetSpec::Earliest), |offset| StartAt::Offset(Offset(*offset))),
        }
    }
}

/// The partitions to read, each with where to begin; that all topics are there is found out on the way.
pub async fn find(cluster: &Cluster, wanted: &Wanted) -> Result<Vec<(TopicPartition, StartAt)>, StageError> {
    let mut found = Vec::new();
    for topic in &wanted.topics {
        let indexes = partitions_of(cluster, topic).await?;
        for &index in wanted.chosen.as_ref().unwrap_or(&indexes) {
            if !indexes.contains(&index) {
                let reason =
                    format!("it has no partition {index}: 0 to {} would be right", indexes.len() - 1);
                return Err(failed(format!("Topic {topic}"), reason));
            }
            found.push((TopicPartition::new(topic.as_str(), index), wanted.start(index)));
        }
    }
    Ok(found)
}

async fn partitions_of(cluster: &Cluster, topic: &str) -> Result<Vec<i32>, StageError> {
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
                    Some(code) => return Err(failed(format!("Topic {topic}"), code)),
                }
            }
            Err(error) if !error.is_retriable() => return Err(failed(format!("Topic {topic}"), error)),
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
