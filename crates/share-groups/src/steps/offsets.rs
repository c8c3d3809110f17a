//! DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets.

use super::{AT_ONCE, ShareGroupParts, ShareGroupService, ends, key};
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_groups::SharePartitions;
use thalweg_hash::HashMap;
use thalweg_share::StateSummary;
use thalweg_wire::request::alter_share_group_offsets_response::AlterShareGroupOffsetsResponseTopic;
use thalweg_wire::request::delete_share_group_offsets_response::DeleteShareGroupOffsetsResponseTopic;
use thalweg_wire::request::describe_share_group_offsets_request::{
    DescribeShareGroupOffsetsRequestGroup, DescribeShareGroupOffsetsRequestTopic,
};
use thalweg_wire::request::describe_share_group_offsets_response::{
    DescribeShareGroupOffsetsResponseGroup, DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
};
use thalweg_wire::request::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse, DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
};
use thalweg_wire::{ErrorCode, Uuid};

/// Unknown offset, count or lag.
const UNKNOWN: i64 = -1;
/// Kafka's message for an empty group id.
const NO_NAME: &str = "The group id is invalid.";

type DescribedTopic = DescribeShareGroupOffsetsResponseTopic;

impl ShareGroupService {
    /// DescribeShareGroupOffsets, versions 0 and 1, for one group: the named topics, or all initialized ones.
    /// Partitions without an offset have -1.
    pub async fn describe_offsets(
        &self,
        request: DescribeShareGroupOffsetsRequestGroup,
    ) -> DescribeShareGroupOffsetsResponseGroup {
        let (parts, group_id) = (&self.parts, request.group_id);
        let mut answer = DescribeShareGroupOffsetsResponseGroup { group_id, ..Default::default() };
        let topics = parts.groups.topics();
        let mut wanted: Vec<(Uuid, String, Vec<i32>)> = Vec::new();
        let mut absent = Vec::new();
        match request.topics {
            Some(named) => {
                for topic in named {
                    match topics.id(&topic.topic_name) {
                        Some(id) => wanted.push((id, topic.topic_name, topic.partitions)),
                        None => absent.push(without_offsets(topic)),
                    }
                }
            }
            None => match parts.groups.initialized_share_partitions(&answer.group_id).await {
                Ok(initialized) => wanted.extend(initialized.into_iter().filter_map(|(id, partitions)| {
                    Some((id, topics.name(id)?, partitions.into_iter().collect()))
                })),
                Err(error) => {
                    answer.error_code = error.code().code();
                    answer.error_message = Some(error.to_string());
                    return answer;
                }
            },
        }
        answer.topics = parts.describe_topics(&answer.group_id, wanted).await;
        answer.topics.extend(absent);
        answer
    }

    /// AlterShareGroupOffsets, version 0: sets the offsets of a group without members, which is created if
    /// missing.
    pub async fn alter_offsets(
        &self,
        request: AlterShareGroupOffsetsRequest,
    ) -> AlterShareGroupOffsetsResponse {
        let refused = |error: ErrorCode, message: String| AlterShareGroupOffsetsResponse {
            error_code: error.code(),
            error_message: Some(message),
            ..Default::default()
        };
        let (parts, id) = (&self.parts, &request.group_id);
        if id.is_empty() {
            return refused(ErrorCode::InvalidGroupId, NO_NAME.to_owned());
        }
        let mut altered = match parts.groups.alter_share_offsets(id, &request.topics).await {
            Ok(altered) => altered,
            Err(error) => return refused(error.code(), error.to_string()),
        };
        let outcomes = parts.initialize(&altered.initialization).await;
        let failed: HashMap<(Uuid, i32), _> =
            outcomes.into_iter().filter_map(|(place, result)| Some((place, result.err()?))).collect();
        if failed.is_empty() {
            if !altered.initialization.offsets.is_empty()
                && let Err(error) = parts.note(&altered.initialization, true).await
            {
                tracing::warn!(group = id, %error, "Failed to write down that offsets of a share group were set");
            }
        } else {
            mark_failed(&mut altered.topics, |topic, partition| {
                failed.get(&(topic, partition)).map(|error| (error.code(), error.to_string()))
            });
        }
        AlterShareGroupOffsetsResponse { responses: altered.topics, ..Default::default() }
    }

    /// DeleteShareGroupOffsets, version 0: deletes a group's offsets of topics. The group must have no
    /// members.
    pub async fn delete_offsets(
        &self,
        request: DeleteShareGroupOffsetsRequest,
    ) -> DeleteShareGroupOffsetsResponse {
        let refused = |error: ErrorCode, message: String| DeleteShareGroupOffsetsResponse {
            error_code: error.code(),
            error_message: Some(message),
            ..Default::default()
        };
        let (parts, id) = (&self.parts, &request.group_id);
        if id.is_empty() {
            return refused(ErrorCode::InvalidGroupId, NO_NAME.to_owned());
        }
        let mut seen = BTreeSet::new();
        let names = request.topics.into_iter().map(|topic| topic.topic_name);
        let names: Vec<String> = names.filter(|name| seen.insert(name.clone())).collect();
        let deleted = match parts.groups.delete_share_offsets(id, &names).await {
            Ok(deleted) => deleted,
            Err(error) => return refused(error.code(), error.to_string()),
        };
        let mut responses = deleted.refused;
        let failed = parts.delete(id, &deleted.states).await.into_iter();
        let failed: BTreeMap<Uuid, _> =
            failed.filter_map(|((topic, _), result)| Some((topic, result.err()?))).collect();
        let done: BTreeSet<Uuid> =
            deleted.states.keys().copied().filter(|topic| !failed.contains_key(topic)).collect();
        if !done.is_empty()
            && let Err(error) = parts.groups.share_offsets_deleted(id, &done).await
        {
            return refused(error.code(), error.to_string());
        }
        responses.extend(deleted.states.keys().map(|topic| {
            let error = failed.get(topic);
            DeleteShareGroupOffsetsResponseTopic {
                topic_id: *topic,
                topic_name: parts.groups.topics().name(*topic).unwrap_or_default(),
                error_code: error.map_or(ErrorCode::None, |error| error.code()).code(),
                error_message: error.map(ToString::to_string),
            }
        }));
        DeleteShareGroupOffsetsResponse { responses, ..Default::default() }
    }
}

impl ShareGroupParts {
    async fn describe_topics(
        &self,
        group: &str,
        wanted: Vec<(Uuid, String, Vec<i32>)>,
    ) -> Vec<DescribedTopic> {
        let topics = self.groups.topics();
        // Skip partitions that do not exist: their unknown state would be requested with all retries.
        let existing = |id: &Uuid, partitions: &[i32]| {
            let all = 0..topics.partition_count(*id).unwrap_or(0);
            partitions.iter().copied().filter(|index| all.contains(index)).collect()
        };
        let states: SharePartitions =
            wanted.iter().map(|(id, _, partitions)| (*id, existing(id, partitions))).collect();
        let summaries = self.summaries(group, &states).await;
        let names: HashMap<Uuid, &str> = wanted.iter().map(|(id, name, _)| (*id, name.as_str())).collect();
        let with_lag = summaries.iter().filter(|(_, summary)| has_lag(summary));
        let with_lag = with_lag.map(|((topic, partition), _)| (names[topic].to_owned(), *partition));
        let ends = ends::latest(self, with_lag.collect()).await;
        let describe = |topic: &Uuid, name: &str, partition_index: i32| {
            let mut answer =
                DescribeShareGroupOffsetsResponsePartition { partition_index, ..Default::default() };
            let Some(summary) = summaries.get(&(*topic, partition_index)) else {
                // Like OffsetFetch, unreadable offsets are reported as absent.
                (answer.start_offset, answer.lag) = (UNKNOWN, UNKNOWN);
                return answer;
            };
            let end = match has_lag(summary) {
                true => ends
                    .get(&(name.to_owned(), partition_index))
                    .copied()
                    .unwrap_or(Err(ErrorCode::LeaderNotAvailable)),
                false => Ok(UNKNOWN),
            };
            match end {
                Err(error) => {
                    answer.error_code = error.code();
                    answer.error_message = Some("The end of the partition could not be read".to_owned());
                }
                Ok(end) => {
                    answer.start_offset = summary.start_offset;
                    answer.leader_epoch = summary.leader_epoch;
                    answer.lag = UNKNOWN;
                    if has_lag(summary) {
                        answer.lag = end - summary.start_offset - i64::from(summary.delivery_complete_count);
                    }
                }
            }
            answer
        };
        let described = wanted.iter().map(|(topic_id, name, partitions)| DescribedTopic {
            topic_id: *topic_id,
            topic_name: name.clone(),
            partitions: partitions.iter().map(|index| describe(topic_id, name, *index)).collect(),
        });
        described.collect()
    }

    /// The states that could be read.
    async fn summaries(&self, group: &str, states: &SharePartitions) -> HashMap<(Uuid, i32), StateSummary> {
        let group: Arc<str> = group.into();
        let each: Vec<(Uuid, i32)> =
            states.iter().flat_map(|(topic, some)| some.iter().map(|index| (*topic, *index))).collect();
        let mut summaries = HashMap::default();
        for some in each.chunks(AT_ONCE) {
            let read = some.iter().map(|(topic, partition)| {
                let key = key(&group, *topic, *partition);
                async move { ((*topic, *partition), self.persister.read_summary(&key, 0).await) }
            });
            for (place, summary) in join_all(read).await {
                match summary {
                    Ok(summary) => drop(summaries.insert(place, summary)),
                    Err(error) => {
                        tracing::debug!(%group, ?place, %error, "Failed to read the state of a share partition")
                    }
                }
            }
        }
        summaries
    }
}

fn has_lag(summary: &StateSummary) -> bool {
    summary.start_offset != UNKNOWN && summary.delivery_complete_count != -1
}

/// The answer for an unknown topic.
fn without_offsets(topic: DescribeShareGroupOffsetsRequestTopic) -> DescribedTopic {
    let partition = |index: &i32| DescribeShareGroupOffsetsResponsePartition {
        partition_index: *index,
        start_offset: UNKNOWN,
        lag: UNKNOWN,
        ..Default::default()
    };
    DescribedTopic {
        topic_name: topic.topic_name,
        partitions: topic.partitions.iter().map(partition).collect(),
        ..Default::default()
    }
}

fn mark_failed(
    topics: &mut [AlterShareGroupOffsetsResponseTopic],
    error_of: impl Fn(Uuid, i32) -> Option<(ErrorCode, String)>,
) {
    for topic in topics {
        for partition in topic.partitions.iter_mut().filter(|partition| partition.error_code == 0) {
            if let Some((code, message)) = error_of(topic.topic_id, partition.partition_index) {
                partition.error_code = code.code();
                partition.error_message = Some(message);
            }
        }
    }
}
