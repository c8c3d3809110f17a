//! The partitions to read, matched with the cluster.

use thalweg_client::{Cluster, OffsetSpec, StartAt, TopicPartition};
use thalweg_record::Offset;

use crate::declaration::Settings;
use crate::kafka::{failed, partitions_of, with_headers};
use crate::stage::StageError;
use crate::topics::{self, StartPosition};

/// The parameters of reading.
pub struct ReadSettings {
    /// The topics; none with a pattern.
    pub topics: Vec<String>,
    /// The regular expression of the topics' names, for the group.
    pub pattern: Option<String>,
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
        let pattern = topics::pattern(settings.text("topics"));
        ReadSettings {
            topics: match pattern {
                Some(_) => Vec::new(),
                None => topics::names(settings.text("topics")),
            },
            pattern,
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
