//! Parts of a reading, from the answers of brokers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thalweg_client::verdict::{Absence, Cause, DirectoryEvidence, Reach};
use thalweg_client::{
    Admin, ClusterDescription, GroupKind, GroupListing, ListedGroups, LogDir, Metadata, Outcomes,
    PartitionMetadata, TopicPartition,
};
use tokio::time::Instant;

use super::LogEnds;
use crate::top::reading::{
    BrokerReading, GroupReading, GroupsReading, PartitionReading, Reading, TopicReading,
};

/// The log directories of a broker. Old brokers report none to a login without rights.
pub(super) fn known(directories: Outcomes<String, LogDir>) -> Result<Outcomes<String, LogDir>, Absence> {
    match directories.is_empty() {
        true => Err(Absence { cause: Cause::Denied, why: "the broker reports no log directory".to_owned() }),
        false => Ok(directories),
    }
}

/// Adds the log directories of a broker, and the sizes of its replicas.
pub(super) fn add_directories(
    reading: &mut Reading,
    id: i32,
    broker: &mut BrokerReading,
    directories: &Outcomes<String, LogDir>,
) {
    let evidence = directories.iter().map(|(path, found)| DirectoryEvidence {
        path: path.clone(),
        has_failed: found.is_err(),
        space: found.as_ref().ok().and_then(LogDir::space),
    });
    broker.directories = Ok(evidence.collect());
    let size = |dir: &LogDir| dir.replicas.values().map(|replica| replica.bytes).sum();
    let sizes = directories.iter().map(|(path, found)| (path.clone(), found.as_ref().ok().map(size)));
    broker.logs = Some(sizes.collect());
    let replicas = directories.values().flatten().flat_map(|dir| &dir.replicas);
    for (at, replica) in replicas.filter(|(_, replica)| !replica.is_future) {
        let topic = reading.topics.entry(Arc::clone(&at.topic)).or_default();
        topic.log_bytes += replica.bytes;
        let Ok(place) = topic.partitions.binary_search_by_key(&at.partition, |one| one.index) else {
            continue;
        };
        let partition = &mut topic.partitions[place];
        // A replica that the broker should not hold is no part of the whole.
        topic.sized_replicas += usize::from(partition.replicas.contains(&id));
        if partition.leader == Some(id) {
            partition.leader_bytes = Some(replica.bytes);
        }
    }
}

/// Adds brokers that only replicas name.
pub(super) fn add_unregistered(reading: &mut Reading, described: Option<&ClusterDescription>) {
    let reach = match described.is_some_and(|cluster| cluster.reports_fenced) {
        true => Reach::Unregistered,
        false => Reach::Unknown,
    };
    let held: BTreeSet<i32> =
        reading.partitions().flat_map(|(_, partition)| &partition.replicas).copied().collect();
    for id in held {
        reading.brokers.entry(id).or_insert_with(|| BrokerReading {
            address: None,
            rack: None,
            reach,
            is_fenced: true,
            directories: Ok(Vec::new()),
            logs: None,
            sized_at: None,
        });
    }
}

pub(super) fn topics(metadata: &Metadata, found: &LogEnds) -> BTreeMap<Arc<str>, TopicReading> {
    let topics = metadata.topics.values().map(|topic| {
        let partition = |one: &PartitionMetadata| {
            let at = TopicPartition::new(Arc::clone(&topic.name), one.index);
            let end = found.ends.get(&at).copied();
            PartitionReading {
                index: one.index,
                leader: one.leader,
                replicas: one.replicas.clone(),
                isr: one.isr.clone(),
                end: end.map(|(end, _)| end),
                end_at: end.map(|(_, at)| at),
                start: found.starts.get(&at).copied(),
                leader_bytes: None,
            }
        };
        let partitions = topic.partitions.iter().map(partition).collect();
        (Arc::clone(&topic.name), TopicReading { id: topic.id, partitions, ..TopicReading::default() })
    });
    topics.collect()
}

/// The positions and members of listed groups, those that are read in time.
pub(super) async fn groups(admin: &Admin, listed: &ListedGroups) -> GroupsReading {
    let mut positions = BTreeMap::new();
    let unread = admin
        .positions_of_groups(&listed.groups, |group, found| {
            drop(positions.insert(group.group.as_str(), (Instant::now(), found)))
        })
        .await;
    let read_at = Instant::now();
    let has_offsets = |group: &str| positions.contains_key(group);
    let (described, undescribed) = admin.descriptions_of_groups(&listed.groups, has_offsets).await;
    let group = |one: &GroupListing| {
        let name = one.group.as_str();
        let members = match described.get(name) {
            Some(found) => Some((found.members.len(), found.owners().into_keys().collect())),
            None if undescribed.contains(name) => None,
            None => Some((0, BTreeSet::new())),
        };
        GroupReading {
            name: one.group.clone(),
            kind: GroupKind::from_name(&one.kind).unwrap_or(GroupKind::Classic),
            state: one.state.clone(),
            members,
            positions_at: positions.get(name).map_or(read_at, |(at, _)| *at),
            positions: match unread.contains(name) {
                true => None,
                false => Some(positions.get(name).map(|(_, found)| found.clone()).unwrap_or_default()),
            },
        }
    };
    let groups = listed.groups.iter().map(group).collect();
    GroupsReading { groups, gaps: listed.unseen.reasons() }
}
