//! The figures of an interval as a document. Unknown figures are null. Pure.

use serde_json::{Value, json};
use thalweg_lab::live::MachineUse;

use super::figures::{BrokerFigures, Figures, GroupFigures, Sum, TopicFigures};
use super::machine;

/// A document. `notes` precede those of the figures; `rows` limits the lists of topics and groups.
pub(super) fn document(
    figures: &Figures,
    notes: &[String],
    machine: Option<&MachineUse>,
    at_ms: i64,
    rows: Option<usize>,
) -> Value {
    let rows = rows.unwrap_or(usize::MAX);
    let topics: Vec<Value> = figures.topics.iter().take(rows).map(TopicFigures::to_json).collect();
    let brokers: Vec<Value> = figures.brokers.iter().map(BrokerFigures::to_json).collect();
    let groups: Option<Vec<Value>> =
        figures.groups.as_ref().map(|groups| groups.iter().take(rows).map(GroupFigures::to_json).collect());
    json!({
        "at_ms": at_ms,
        "interval_s": figures.interval.map(|interval| interval.as_secs_f64()),
        "reading_s": figures.took.as_secs_f64(),
        "error": null,
        "cluster": cluster(figures),
        "brokers": brokers,
        "topics": topics,
        "groups": groups,
        "machine": machine.map(machine::to_json),
        "notes": notes.iter().chain(&figures.notes).collect::<Vec<_>>(),
    })
}

/// The document of an interval without a reading.
pub(super) fn failure(error: &str, machine: Option<&MachineUse>, at_ms: i64) -> Value {
    json!({
        "at_ms": at_ms,
        "interval_s": null,
        "reading_s": null,
        "error": error,
        "cluster": null,
        "brokers": null,
        "topics": null,
        "groups": null,
        "machine": machine.map(machine::to_json),
        "notes": [],
    })
}

fn value(sum: Option<Sum>) -> Option<f64> {
    sum.map(|sum| sum.value)
}

/// A sum of whole things.
fn whole(sum: Option<Sum>) -> Option<i64> {
    sum.map(|sum| sum.value.round() as i64)
}

/// True if a part of a sum is unknown; null without a sum.
fn is_partial(sum: Option<Sum>) -> Option<bool> {
    sum.map(|sum| !sum.is_whole)
}

fn cluster(figures: &Figures) -> Value {
    let cluster = &figures.cluster;
    let partitions = cluster.partitions.as_ref();
    let problems = figures.verdicts.iter().map(|verdict| {
        json!({
            "health": verdict.fault.health().name(),
            "severity": verdict.fault.severity().name(),
            "fault": verdict.fault.name(),
            "text": verdict.text,
        })
    });
    json!({
        "cluster_id": cluster.id,
        "health": cluster.health.name(),
        "problems": problems.collect::<Vec<_>>(),
        "controller": cluster.controller,
        "brokers": cluster.brokers,
        "brokers_up": cluster.brokers_up,
        "topics": cluster.topics,
        "topics_partial": cluster.topics.map(|_| !cluster.has_all_topics),
        "partitions": partitions.map(|counts| counts.total),
        "under_replicated": partitions.map(|counts| counts.under_replicated),
        "offline": partitions.map(|counts| counts.offline),
        "messages_per_s": value(cluster.messages_per_s),
        "messages_partial": is_partial(cluster.messages_per_s),
        "bytes_per_s": value(cluster.bytes_per_s),
        "bytes_partial": is_partial(cluster.bytes_per_s),
        "groups": figures.groups.as_ref().map(Vec::len),
        "groups_partial": figures.groups.as_ref().map(|_| !cluster.has_all_groups),
    })
}

impl BrokerFigures {
    fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "address": self.address,
            "rack": self.rack,
            "state": self.state,
            "leaders": self.leaders,
            "replicas": self.replicas,
            "out_of_sync": self.out_of_sync,
            "log_bytes": whole(self.log_bytes),
            "log_bytes_partial": is_partial(self.log_bytes),
            "log_bytes_per_s": value(self.log_bytes_per_s),
        })
    }
}

impl TopicFigures {
    fn to_json(&self) -> Value {
        json!({
            "topic": &*self.name,
            "partitions": self.partitions,
            "offline": self.leaderless,
            "under_replicated": self.under_replicated,
            "messages_per_s": value(self.messages_per_s),
            "messages_partial": is_partial(self.messages_per_s),
            "bytes_per_s": value(self.bytes_per_s),
            "bytes_partial": is_partial(self.bytes_per_s),
            "log_bytes": whole(self.log_bytes),
            "log_bytes_partial": is_partial(self.log_bytes),
        })
    }
}

impl GroupFigures {
    fn to_json(&self) -> Value {
        json!({
            "group": self.name,
            "type": self.kind.name(),
            "state": self.state,
            "members": self.members,
            "lag": whole(self.lag),
            "lag_partial": is_partial(self.lag),
            "lag_per_s": self.lag_per_s,
            "consumed_per_s": value(self.consumed_per_s),
            "consumed_partial": is_partial(self.consumed_per_s),
            "problem": self.problem,
        })
    }
}
