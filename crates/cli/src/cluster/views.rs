//! Combines the brokers' answers: the newest state of each partition, and the brokers with older metadata.
//!
//! Answers are gathered at slightly different moments. A difference counts as a problem only if it remains
//! after another look.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_client::PartitionMetadata;

use super::nodes::NodeAnswers;
use super::state::{BrokerStatus, DifferingBroker, PartitionStatus, ProbeResult};
use crate::probe::{Answers, BrokerView, RegisteredBroker};

/// The answers of one look at a cluster.
pub(crate) struct Views<'a> {
    answers: &'a Answers,
    /// The views of registered brokers that answered on their own listeners.
    by_broker: BTreeMap<i32, &'a BrokerView>,
    /// The view with the newest state of most partitions.
    newest: &'a BrokerView,
}

/// The newest metadata of each partition, by topic and index.
type NewestPartitions<'a> = BTreeMap<(&'a str, i32), &'a PartitionMetadata>;

impl<'a> Views<'a> {
    /// None if no broker has answered.
    pub fn of(answers: &'a Answers) -> Option<Views<'a>> {
        let first = answers.values().flatten().next()?;
        let registered = answers.values().flatten().flat_map(|view| &view.brokers);
        let by_broker: BTreeMap<i32, &BrokerView> = registered
            .filter_map(|(id, broker)| Some((*id, answers.get(&broker.address)?.as_ref().ok()?)))
            .collect();
        let mut views = Views { answers, by_broker, newest: first };
        let all = views.newest_partitions();
        let behind =
            |view: &BrokerView| all.iter().filter(|(at, newest)| is_behind(view, at, newest)).count();
        if let Some((_, newest)) = views.by_broker.iter().min_by_key(|(_, view)| behind(view)) {
            views.newest = newest;
        }
        Some(views)
    }

    /// The view with the newest metadata, best for further requests.
    pub fn newest(&self) -> &'a BrokerView {
        self.newest
    }

    /// The brokers that answered on their own listeners.
    pub fn nodes(&self) -> impl Iterator<Item = (i32, &'a BrokerView)> + '_ {
        self.by_broker.iter().map(|(id, view)| (*id, *view))
    }

    /// True if a broker answered on its own listener.
    pub fn answers(&self, broker: i32) -> bool {
        self.by_broker.contains_key(&broker)
    }

    fn all(&self) -> impl Iterator<Item = (Option<i32>, &'a BrokerView)> + '_ {
        let named = self.by_broker.iter().map(|(id, view)| (Some(*id), *view));
        // If no broker is reachable at its advertised address, use the other answers.
        let fallback = self.by_broker.is_empty().then_some((None, self.newest));
        named.chain(fallback)
    }

    /// The metadata with the highest leader epoch; of equals, the leader's own, which knows the in-sync
    /// replicas first.
    fn newest_partitions(&self) -> NewestPartitions<'a> {
        let mut newest = BTreeMap::new();
        for (id, view) in self.all() {
            for (name, topic) in &view.metadata.topics {
                for partition in &topic.partitions {
                    let rank = (partition.leader_epoch, id.is_some() && partition.leader == id);
                    let known = newest.entry((name.as_str(), partition.index)).or_insert((rank, partition));
                    if known.0 < rank {
                        *known = (rank, partition);
                    }
                }
            }
        }
        newest.into_iter().map(|(at, (_, partition))| (at, partition)).collect()
    }

    /// All partitions that an answer names. `min_isr` is `min.insync.replicas` by topic.
    pub fn partitions(&self, min_isr: &BTreeMap<String, usize>) -> Vec<PartitionStatus> {
        let newest = self.newest_partitions();
        let known = newest.iter().filter(|((topic, _), _)| self.newest.metadata.topics.contains_key(*topic));
        known
            .map(|((topic, index), partition)| PartitionStatus {
                topic: (*topic).to_owned(),
                partition: *index,
                leader: partition.leader,
                leader_answers: partition.leader.is_some_and(|leader| self.answers(leader)),
                replicas: partition.replicas.clone(),
                adding: 0,
                isr: partition.isr.clone(),
                live_isr: partition.isr.iter().copied().filter(|id| self.answers(*id)).collect(),
                // The number of replicas limits the number in sync.
                min_isr: min_isr.get(*topic).map(|min| (*min).min(partition.replicas.len())),
            })
            .collect()
    }

    /// All brokers that an answer or a partition names.
    pub fn brokers(&self, partitions: &[PartitionStatus], nodes: &NodeAnswers) -> Vec<BrokerStatus> {
        let mut registered: BTreeMap<i32, &RegisteredBroker> = BTreeMap::new();
        for view in self.answers.values().flatten().chain([self.newest]) {
            registered.extend(view.brokers.iter().map(|(id, broker)| (*id, broker)));
        }
        let held = partitions.iter().flat_map(|partition| &partition.replicas).copied();
        let ids: BTreeSet<i32> = registered.keys().copied().chain(held).collect();
        let count = |is_it: &dyn Fn(&PartitionStatus) -> bool| partitions.iter().filter(|p| is_it(p)).count();
        ids.into_iter()
            .map(|id| {
                let broker = registered.get(&id);
                let address = broker.map(|broker| broker.address.clone());
                BrokerStatus {
                    id,
                    probe: match address.as_ref().and_then(|address| self.answers.get(address)) {
                        Some(Ok(_)) => ProbeResult::Answers,
                        Some(Err(missing)) => ProbeResult::NotReached(missing.why.clone()),
                        None => ProbeResult::NoAddress,
                    },
                    address,
                    rack: broker.and_then(|broker| broker.rack.clone()),
                    is_fenced: broker.is_none_or(|broker| broker.is_fenced),
                    leaders: count(&|partition| partition.leader == Some(id)),
                    replicas: count(&|partition| partition.replicas.contains(&id)),
                    directories: nodes.directories(id),
                }
            })
            .collect()
    }

    /// The brokers with older or different metadata.
    pub fn differing(&self) -> Vec<DifferingBroker> {
        let newest = self.newest_partitions();
        let alive = |view: &BrokerView| -> BTreeSet<i32> {
            view.brokers.iter().filter(|(_, broker)| !broker.is_fenced).map(|(id, _)| *id).collect()
        };
        let expected = alive(self.newest);
        let found = self.by_broker.iter().map(|(id, view)| {
            let behind: Vec<(String, i32)> = newest
                .iter()
                .filter(|(at, newest)| is_behind(view, at, newest))
                .map(|((topic, partition), _)| ((*topic).to_owned(), *partition))
                .collect();
            let alive = alive(view);
            let otherwise = expected.symmetric_difference(&alive).copied().collect();
            DifferingBroker { broker: *id, behind, brokers: otherwise }
        });
        found.filter(|one| !one.behind.is_empty() || !one.brokers.is_empty()).collect()
    }
}

/// True if a view lacks a partition, or has an outdated leader.
fn is_behind(view: &BrokerView, (topic, index): &(&str, i32), newest: &PartitionMetadata) -> bool {
    let known = view.metadata.topics.get(*topic).and_then(|topic| topic.partition(*index));
    known.is_none_or(|known| known.leader_epoch < newest.leader_epoch)
}
