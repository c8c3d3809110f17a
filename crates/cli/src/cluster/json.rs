//! The result of `cluster status` as JSON.

use serde_json::{Value, json};
use thalweg_client::verdict::Health;

use super::state::{BrokerStatus, PartitionStatus, ProbeResult, Status};

impl Status {
    /// The whole status. Only partitions with a problem are listed by name.
    pub fn to_json(&self) -> Value {
        let all = |found: Vec<&PartitionStatus>| -> Vec<Value> {
            found.into_iter().map(PartitionStatus::to_json).collect()
        };
        let verdicts = self.verdicts();
        let seen = |count: usize| (!self.is_blind()).then_some(count);
        let problems = verdicts.iter().map(|verdict| {
            json!({
                "health": verdict.fault.health().name(),
                "severity": verdict.fault.severity().name(),
                "fault": verdict.fault.name(),
                "text": verdict.text,
            })
        });
        let differing = self.differing.iter().map(|one| {
            let behind = one.behind.iter().map(|(topic, partition)| json!([topic, partition]));
            json!({
                "broker": one.broker,
                "partitions_behind": behind.collect::<Vec<_>>(),
                "brokers_otherwise": one.brokers,
            })
        });
        let not_reached =
            self.not_reached.iter().map(|(address, why)| (address.clone(), why.as_str().into()));
        json!({
            "cluster_id": self.cluster_id,
            "health": Health::of(&verdicts).name(),
            "problems": problems.collect::<Vec<_>>(),
            "brokers": self.brokers.iter().map(|broker| broker.to_json(self.is_blind())).collect::<Vec<_>>(),
            "not_reached": not_reached.collect::<serde_json::Map<_, _>>(),
            "differing": differing.collect::<Vec<_>>(),
            "topics": seen(self.topics),
            "hidden_topics": self.hidden_topics.as_ref().ok(),
            "partitions": seen(self.partitions.len()),
            "offline": all(self.offline()),
            "under_min_isr": all(self.under_min_isr()),
            "under_replicated": all(self.under_replicated()),
            "reassignments": self.reassignments_json(),
            "quorum": self.quorum_json(),
        })
    }

    fn reassignments_json(&self) -> Value {
        match &self.reassignments {
            Err(unavailable) => json!({ "error": unavailable.why }),
            Ok(found) => found
                .iter()
                .map(|going| {
                    json!({
                        "topic": going.topic,
                        "partition": going.partition,
                        "replicas": going.replicas,
                        "adding": going.adding,
                        "removing": going.removing,
                    })
                })
                .collect(),
        }
    }

    fn quorum_json(&self) -> Value {
        let quorum = match &self.quorum {
            Err(unavailable) => return json!({ "error": unavailable.why }),
            Ok(quorum) => quorum,
        };
        let nodes = quorum.nodes.iter().map(|node| {
            json!({
                "id": node.id,
                "role": node.role.name(),
                "address": node.address,
                "log_end_offset": node.log_end_offset,
                "lag": quorum.lag(node),
                "last_fetch_ms_ago": node.silent_ms,
            })
        });
        json!({
            "leader": quorum.leader,
            "epoch": quorum.epoch,
            "high_watermark": quorum.high_watermark,
            "nodes": nodes.collect::<Vec<_>>(),
        })
    }
}

impl BrokerStatus {
    fn to_json(&self, is_blind: bool) -> Value {
        let seen = |count: usize| (!is_blind).then_some(count);
        let error = match &self.probe {
            ProbeResult::NotReached(why) => Some(why),
            _ => None,
        };
        json!({
            "id": self.id,
            "address": self.address,
            "rack": self.rack,
            "state": self.state(),
            "fenced": self.is_fenced,
            "reached": self.probe == ProbeResult::Answers,
            "error": error,
            "leaders": seen(self.leaders),
            "replicas": seen(self.replicas),
        })
    }
}

impl PartitionStatus {
    fn to_json(&self) -> Value {
        json!({
            "topic": self.topic,
            "partition": self.partition,
            "leader": self.leader,
            "leader_reached": self.leader_answers,
            "replicas": self.replicas,
            "isr": self.isr,
            "live_isr": self.live_isr,
            "min_isr": self.min_isr,
        })
    }
}
