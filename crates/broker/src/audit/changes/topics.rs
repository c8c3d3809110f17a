//! Changes of topics and their partitions.

use super::{Changes, by_name, listed, numbers, worst};
use std::collections::BTreeMap;
use thalweg_audit::Action;
use thalweg_wire::request::*;

const TOPIC: &str = "Topic";

/// Topics that a client asks for, or names where that creates them.
pub(in crate::audit) fn create_topics(
    request: &CreateTopicsRequest,
    answer: &CreateTopicsResponse,
    changes: &mut Changes<'_>,
) {
    if request.validate_only {
        return;
    }
    let asked = by_name(&request.topics, |topic| &topic.name);
    for topic in &answer.topics {
        let detail = asked.get(&*topic.name).map_or_else(String::new, |asked| {
            let size = [
                ("partitions", asked.num_partitions.to_string()),
                ("replication.factor", asked.replication_factor.to_string()),
            ];
            let size = size.into_iter().filter(|_| asked.assignments.is_empty());
            let configs =
                asked.configs.iter().map(|config| (&*config.name, config.value.clone().unwrap_or_default()));
            listed(size.chain(configs))
        });
        changes.note(
            Action::Create,
            TOPIC,
            &topic.name,
            detail,
            (topic.error_code, topic.error_message.as_deref()),
        );
    }
}

pub(super) fn delete_topics(
    _: &DeleteTopicsRequest,
    answer: &DeleteTopicsResponse,
    changes: &mut Changes<'_>,
) {
    for topic in &answer.responses {
        let ending = (topic.error_code, topic.error_message.as_deref());
        let id = if topic.topic_id.is_zero() { String::new() } else { format!("id={:?}", topic.topic_id) };
        changes.note(Action::Delete, TOPIC, topic.name.as_deref().unwrap_or_default(), id, ending);
    }
}

pub(super) fn create_partitions(
    request: &CreatePartitionsRequest,
    answer: &CreatePartitionsResponse,
    changes: &mut Changes<'_>,
) {
    if request.validate_only {
        return;
    }
    let asked = by_name(&request.topics, |topic| &topic.name);
    for topic in &answer.results {
        let detail =
            asked.get(&*topic.name).map_or_else(String::new, |asked| format!("partitions={}", asked.count));
        changes.note(
            Action::Update,
            TOPIC,
            &topic.name,
            detail,
            (topic.error_code, topic.error_message.as_deref()),
        );
    }
}

pub(super) fn delete_records(
    request: &DeleteRecordsRequest,
    answer: &DeleteRecordsResponse,
    changes: &mut Changes<'_>,
) {
    let ended = by_name(&answer.topics, |topic| &topic.name);
    for topic in &request.topics {
        let partitions = topic.partitions.iter().take(100);
        let before: Vec<_> = partitions.map(|p| format!("{}:{}", p.partition_index, p.offset)).collect();
        let ended = ended.get(&*topic.name).into_iter().flat_map(|topic| &topic.partitions);
        let ending = worst(ended.map(|partition| (partition.error_code, None)));
        changes.note(
            Action::Update,
            TOPIC,
            &topic.name,
            format!("delete.records.before={}", before.join(",")),
            ending,
        );
    }
}

pub(super) fn elect_leaders(
    request: &ElectLeadersRequest,
    answer: &ElectLeadersResponse,
    changes: &mut Changes<'_>,
) {
    let kind = if request.election_type == 0 { "preferred" } else { "unclean" };
    if answer.error_code != 0 {
        let detail = format!("election={kind}");
        changes.note(Action::Update, "Cluster", "kafka-cluster", detail, (answer.error_code, None));
        return;
    }
    for topic in &answer.replica_election_results {
        let ending = worst(topic.partition_result.iter().map(|p| (p.error_code, p.error_message.as_deref())));
        let partitions = numbers(topic.partition_result.iter().map(|partition| partition.partition_id));
        changes.note(
            Action::Update,
            TOPIC,
            &topic.topic,
            format!("election={kind} partitions={partitions}"),
            ending,
        );
    }
}

pub(super) fn reassign(
    request: &AlterPartitionReassignmentsRequest,
    answer: &AlterPartitionReassignmentsResponse,
    changes: &mut Changes<'_>,
) {
    let ended = by_name(&answer.responses, |topic| &topic.name);
    for topic in &request.topics {
        let moved = topic.partitions.iter().take(100).map(|partition| {
            let replicas = partition
                .replicas
                .as_ref()
                .map_or_else(|| "cancelled".to_owned(), |replicas| numbers(replicas.iter().copied()));
            format!("{}:[{replicas}]", partition.partition_index)
        });
        let moved: Vec<_> = moved.collect();
        let whole = [(answer.error_code, answer.error_message.as_deref())];
        let ended = ended.get(&*topic.name).into_iter().flat_map(|topic| &topic.partitions);
        let ending =
            worst(whole.into_iter().chain(ended.map(|p| (p.error_code, p.error_message.as_deref()))));
        changes.note(Action::Update, TOPIC, &topic.name, format!("replicas={}", moved.join(",")), ending);
    }
}

pub(super) fn move_replicas(
    request: &AlterReplicaLogDirsRequest,
    answer: &AlterReplicaLogDirsResponse,
    changes: &mut Changes<'_>,
) {
    let ended = by_name(&answer.results, |topic| &topic.topic_name);
    for dir in &request.dirs {
        for topic in &dir.topics {
            let detail =
                format!("log.dir={} partitions={}", dir.path, numbers(topic.partitions.iter().copied()));
            let ended = ended.get(&*topic.name).into_iter().flat_map(|topic| &topic.partitions);
            let codes: BTreeMap<i32, i16> = ended.map(|p| (p.partition_index, p.error_code)).collect();
            let ending =
                worst(topic.partitions.iter().map(|index| (codes.get(index).copied().unwrap_or(0), None)));
            changes.note(Action::Update, TOPIC, &topic.name, detail, ending);
        }
    }
}
