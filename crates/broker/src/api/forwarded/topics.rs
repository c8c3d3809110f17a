//! The forwarded APIs about topics and their partitions.

use super::{changing, reading};
use crate::api::Api;
use crate::audit::{Changes, ClusterChange, by_name, listed, numbers, worst};
use thalweg_audit::Action;
use thalweg_wire::request::*;

pub(super) const APIS: &[Api] = &[
    changing::<CreateTopicsRequest>(2..=7),
    changing::<DeleteTopicsRequest>(1..=6),
    changing::<CreatePartitionsRequest>(0..=3),
    changing::<ElectLeadersRequest>(0..=2),
    changing::<AlterPartitionReassignmentsRequest>(0..=1),
    reading::<ListPartitionReassignmentsRequest>(0..=0),
];

const TOPIC: &str = "Topic";

/// Topics that a client creates by request, or automatically by name.
impl ClusterChange for CreateTopicsRequest {
    fn describe(&self, answer: &CreateTopicsResponse, changes: &mut Changes<'_>) {
        if self.validate_only {
            return;
        }
        let requested = by_name(&self.topics, |topic| &topic.name);
        for topic in &answer.topics {
            let detail = requested.get(&*topic.name).map_or_else(String::new, |requested| {
                let size = [
                    ("partitions", requested.num_partitions.to_string()),
                    ("replication.factor", requested.replication_factor.to_string()),
                ];
                let size = size.into_iter().filter(|_| requested.assignments.is_empty());
                let configs = requested
                    .configs
                    .iter()
                    .map(|config| (&*config.name, config.value.clone().unwrap_or_default()));
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
}

impl ClusterChange for DeleteTopicsRequest {
    fn describe(&self, answer: &DeleteTopicsResponse, changes: &mut Changes<'_>) {
        for topic in &answer.responses {
            let ending = (topic.error_code, topic.error_message.as_deref());
            let id =
                if topic.topic_id.is_zero() { String::new() } else { format!("id={:?}", topic.topic_id) };
            changes.note(Action::Delete, TOPIC, topic.name.as_deref().unwrap_or_default(), id, ending);
        }
    }
}

impl ClusterChange for CreatePartitionsRequest {
    fn describe(&self, answer: &CreatePartitionsResponse, changes: &mut Changes<'_>) {
        if self.validate_only {
            return;
        }
        let requested = by_name(&self.topics, |topic| &topic.name);
        for topic in &answer.results {
            let detail = requested
                .get(&*topic.name)
                .map_or_else(String::new, |requested| format!("partitions={}", requested.count));
            changes.note(
                Action::Update,
                TOPIC,
                &topic.name,
                detail,
                (topic.error_code, topic.error_message.as_deref()),
            );
        }
    }
}

impl ClusterChange for ElectLeadersRequest {
    fn describe(&self, answer: &ElectLeadersResponse, changes: &mut Changes<'_>) {
        let kind = if self.election_type == 0 { "preferred" } else { "unclean" };
        if answer.error_code != 0 {
            let detail = format!("election={kind}");
            changes.note(Action::Update, "Cluster", "kafka-cluster", detail, (answer.error_code, None));
            return;
        }
        for topic in &answer.replica_election_results {
            let ending =
                worst(topic.partition_result.iter().map(|p| (p.error_code, p.error_message.as_deref())));
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
}

impl ClusterChange for AlterPartitionReassignmentsRequest {
    fn describe(&self, answer: &AlterPartitionReassignmentsResponse, changes: &mut Changes<'_>) {
        let ended = by_name(&answer.responses, |topic| &topic.name);
        for topic in &self.topics {
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
}
