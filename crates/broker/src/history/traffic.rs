//! The traffic of topics between two samples, from the counters of their partitions.

use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_history::TopicSample;
use thalweg_replica::partition::{Partitions, Traffic};
use thalweg_wire::Uuid;

/// Messages in, bytes in, bytes out.
type Counters = [u64; 3];

/// The counters of topics at the last sample, and the traffic since the one before.
#[derive(Debug, Default)]
pub(super) struct TopicTraffic {
    last: HashMap<Uuid, Counters>,
    traffic: BTreeMap<Arc<str>, Counters>,
}

impl TopicTraffic {
    /// Reads the counters. Returns the bytes of all logs.
    pub(super) fn read(&mut self, partitions: &Partitions) -> u64 {
        let mut log_bytes = 0;
        let mut read = HashMap::default();
        self.traffic.clear();
        for topic in partitions.topics() {
            let mut now = topic.departed;
            for partition in topic.partitions() {
                now += partition.traffic();
                log_bytes += partition.published_offsets().size_bytes();
            }
            let now = counters(&now);
            // A topic that has just arrived here counts from zero.
            let before = self.last.get(&topic.id).copied().unwrap_or_default();
            // Two topics have the same name while one takes the place of the other.
            let sum = self.traffic.entry(Arc::clone(&topic.name)).or_default();
            for ((sum, now), before) in sum.iter_mut().zip(now).zip(before) {
                *sum += now.saturating_sub(before);
            }
            read.insert(topic.id, now);
        }
        self.last = read;
        log_bytes
    }

    /// The traffic by name, with the changes of leaders, also of topics without a partition here.
    pub(super) fn samples<'a>(&'a self, leader_changes: &'a BTreeMap<Arc<str>, u64>) -> Vec<TopicSample<'a>> {
        let changes = |topic: &str| leader_changes.get(topic).copied().unwrap_or(0);
        let here = self.traffic.iter().map(|(topic, [messages_in, bytes_in, bytes_out])| TopicSample {
            topic,
            messages_in: *messages_in,
            bytes_in: *bytes_in,
            bytes_out: *bytes_out,
            leader_changes: changes(topic),
        });
        let elsewhere = leader_changes.iter().filter(|(topic, _)| !self.traffic.contains_key(*topic));
        let elsewhere = elsewhere.map(|(topic, changes)| TopicSample {
            topic,
            leader_changes: *changes,
            ..TopicSample::default()
        });
        here.chain(elsewhere).collect()
    }
}

fn counters(traffic: &Traffic) -> Counters {
    [traffic.messages_in, traffic.bytes_in, traffic.bytes_out]
}
