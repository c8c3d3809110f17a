//! Changes between two samples: of the cluster, by its image, and of this broker's certificates and log
//! directories. And the figures that follow from the image.

use crate::broker::Broker;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_history::{EventKind, Figure, Figures};
use thalweg_metadata::{BrokerId, Image};
use thalweg_security::tls::ServerTls;

/// A number, and the kind of event that it is, unless it is zero.
type CountedEvent = (u64, fn(u64) -> EventKind);

/// The state at the last sample.
#[derive(Default)]
pub(super) struct Changes {
    image: Option<Arc<Image>>,
    /// Partitions under-replicated, and without a leader.
    partitions: (u64, u64),
    /// Partitions with another leader than at the sample before, by topic.
    pub(super) leader_changes: BTreeMap<Arc<str>, u64>,
    certificates: BTreeMap<String, Arc<ServerTls>>,
    failed_directories: usize,
}

impl Changes {
    pub(super) fn read(
        &mut self,
        broker: &Broker,
        image: &Arc<Image>,
        figures: &mut Figures,
        events: &mut Vec<EventKind>,
    ) {
        self.compare(image, broker.node_id, events);
        figures.set(Figure::UnderReplicated, Some(self.partitions.0));
        figures.set(Figure::Leaderless, Some(self.partitions.1));
        for (listener, tls) in broker.secured.current() {
            let before = self.certificates.insert(listener.to_owned(), Arc::clone(&tls));
            if before.is_some_and(|before| !Arc::ptr_eq(&before, &tls)) {
                events.push(EventKind::CertificatesReloaded(listener.into()));
            }
        }
        figures.set(Figure::DiskUsePerMille, self.disk_use(broker, events));
    }

    /// Use of the fullest volume, in tenths of a percent.
    fn disk_use(&mut self, broker: &Broker, events: &mut Vec<EventKind>) -> Option<u64> {
        let volumes = broker.log_dirs.volumes();
        let failed =
            volumes.iter().filter(|volume| volume.is_offline).count() + broker.log_dirs.failed().len();
        let more = failed.saturating_sub(std::mem::replace(&mut self.failed_directories, failed));
        if more > 0 {
            events.push(EventKind::DirectoriesFailed(more as u64));
        }
        let spaces = volumes.iter().filter(|volume| !volume.is_offline).filter_map(|volume| volume.space);
        let used = spaces.filter(|(total, _)| *total > 0).map(|(total, free)| {
            let share = u128::from(total.saturating_sub(free)) * 1000 / u128::from(total);
            u64::try_from(share).unwrap_or(1000)
        });
        used.max()
    }

    /// Compares an image with the last one.
    fn compare(&mut self, image: &Arc<Image>, own: BrokerId, events: &mut Vec<EventKind>) {
        self.leader_changes.clear();
        let before = self.image.replace(Arc::clone(image));
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, image)) {
            return;
        }
        self.partitions = counts(image);
        let Some(before) = before else { return };
        brokers(&before, image, own, events);
        let mut created = 0;
        for topic in image.topics().changed_since(before.topics()) {
            let Some(old) = before.topic_by_id(topic.id) else {
                created += 1;
                continue;
            };
            let changes = topic.partitions.iter().filter(|(index, partition)| {
                old.partition(**index).is_some_and(|old| old.leader != partition.leader)
            });
            let changes = changes.count() as u64;
            if changes > 0 {
                *self.leader_changes.entry(Arc::clone(&topic.name)).or_default() += changes;
            }
        }
        let deleted = (before.topics().len() + created).saturating_sub(image.topics().len());
        let counted: [CountedEvent; 3] = [
            (self.leader_changes.values().sum(), EventKind::LeadersChanged),
            (created as u64, EventKind::TopicsCreated),
            (deleted as u64, EventKind::TopicsDeleted),
        ];
        for (count, kind) in counted {
            if count > 0 {
                events.push(kind(count));
            }
        }
        for (feature, level) in image.features().iter() {
            if before.features().level(feature) != level {
                events.push(EventKind::FeatureLevel(feature.into(), level));
            }
        }
    }
}

/// Partitions with fewer replicas in sync than assigned, and partitions without a leader.
fn counts(image: &Image) -> (u64, u64) {
    let (mut under_replicated, mut leaderless) = (0, 0);
    for partition in image.topics().iter().flat_map(|topic| topic.partitions.values()) {
        under_replicated += u64::from(partition.isr.len() < partition.replication_factor());
        leaderless += u64::from(!partition.has_leader());
    }
    (under_replicated, leaderless)
}

/// Adds the changes of other brokers' availability. A stop of this broker shows as its next start.
fn brokers(before: &Image, image: &Image, own: BrokerId, events: &mut Vec<EventKind>) {
    let ids: BTreeSet<BrokerId> =
        before.alive_brokers().chain(image.alive_brokers()).map(|broker| broker.id).collect();
    for id in ids {
        match (before.is_alive(id), image.is_alive(id)) {
            (false, true) => events.push(EventKind::BrokerUp(id.0)),
            (true, false) => events.push(EventKind::BrokerDown(id.0)),
            _ => {
                let incarnation = |image: &Image| image.broker(id).map(|broker| broker.incarnation_id);
                if id != own && incarnation(before) != incarnation(image) {
                    events.push(EventKind::BrokerRestarted(id.0));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
