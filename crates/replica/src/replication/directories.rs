//! Reports the directory of a replica to the controller if the image differs (Kafka's `AssignmentsManager`):
//! a broker with several directories chooses one itself, and a replaced disk has a new directory id. Until
//! the report arrives, the controller does not elect the replica.
//!
//! A log may also be missing from an existing directory, for example if a partition's folder was removed. The
//! controller would not notice: the replica would be in sync, or eligible, with an empty log. So before the
//! broker may lead, it reports an id that no directory has, and recreates the log once the image shows that
//! id. For a log whose records are known to be missing or damaged (`damaged`) it reports Kafka's lost
//! directory: no replica is in sync there either, and the controller knows that the log was not restarted.
//!
//! A full directory accepts no records from clients or leaders. For partitions with other in-sync replicas,
//! the broker then reports an id that no directory has (KIP-858) until space is free again: another replica
//! leads, and no leader waits for this one. This id is not Kafka's lost directory, because the logs are
//! whole.
//!
//! A replica that returns after such a report may find its partition without a leader. Kafka's controllers
//! elect by the directory known before the report, so the broker reports that directory until there is a
//! leader.

use super::Replication;
use super::answer::backoff;
use crate::partition::Partition;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thalweg_metadata::{BrokerId, DIRECTORY_FULL, DIRECTORY_LOST, Image, PartitionIndex, TopicIdPartition};
use thalweg_wire::request::AssignReplicasToDirsRequest;
use thalweg_wire::request::assign_replicas_to_dirs_request::{DirectoryData, PartitionData, TopicData};
use thalweg_wire::{ErrorCode, Message, Uuid};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Maximum number of partitions per request, as Kafka's controller allows.
const REQUEST_PARTITIONS_MAX: usize = 2250;
/// Maximum pause after a failure.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// The directory of each replica.
pub(super) type ReplicaDirectories = BTreeMap<TopicIdPartition, Uuid>;

/// Pending reports to the controller.
#[derive(Debug, Default)]
pub struct DirectoryAssignments {
    waiting: Mutex<ReplicaDirectories>,
    reported: Notify,
    /// Replicas whose logs or records are missing although the controller counts them, and the directories to
    /// report.
    lost: Mutex<ReplicaDirectories>,
    /// Replicas that are handed over while their directories are full.
    away: Mutex<BTreeSet<TopicIdPartition>>,
    /// Number of replicas handed over so far.
    hand_overs: AtomicU64,
    /// Replicas that have returned, until their partitions have leaders.
    returned: Mutex<BTreeSet<TopicIdPartition>>,
}

impl DirectoryAssignments {
    /// Reports the directory of a replica, regardless of the image.
    pub fn report(&self, topic_id: Uuid, partition: PartitionIndex, directory: Uuid) {
        self.waiting.lock().insert((topic_id, partition), directory);
        self.reported.notify_one();
    }

    /// Reports that the log of a replica is missing from an existing directory.
    pub fn report_lost(&self, topic_id: Uuid, partition: PartitionIndex) {
        self.lost.lock().insert((topic_id, partition), Uuid::random());
    }

    /// Reports that the log of a replica exists without its synced end.
    pub fn report_damaged(&self, topic_id: Uuid, partition: PartitionIndex) {
        self.lost.lock().insert((topic_id, partition), DIRECTORY_LOST);
    }

    /// Hands a replica over to the others: reports an id that no directory has, and stops fetching, until
    /// [`Replication::come_back`]. Returns true if the replica was not handed over before.
    pub fn hand_over(&self, topic_id: Uuid, partition: PartitionIndex) -> bool {
        let is_new = self.away.lock().insert((topic_id, partition));
        if is_new {
            self.hand_overs.fetch_add(1, Ordering::Release);
            self.report(topic_id, partition, DIRECTORY_FULL);
        }
        is_new
    }

    /// Number of replicas handed over since the start.
    pub(super) fn hand_overs(&self) -> u64 {
        self.hand_overs.load(Ordering::Acquire)
    }

    /// True if a replica is handed over.
    pub fn is_away(&self, topic_id: Uuid, partition: PartitionIndex) -> bool {
        self.away.lock().contains(&(topic_id, partition))
    }

    /// The replicas that are handed over.
    pub fn away(&self) -> Vec<TopicIdPartition> {
        self.away.lock().iter().copied().collect()
    }

    /// Forgets a replica that is no longer on this broker.
    pub fn forget_away(&self, topic_id: Uuid, partition: PartitionIndex) {
        self.away.lock().remove(&(topic_id, partition));
    }

    async fn next(&self) -> ReplicaDirectories {
        loop {
            {
                let mut waiting = self.waiting.lock();
                let rest = waiting.keys().nth(REQUEST_PARTITIONS_MAX).copied();
                let rest = rest.map(|first| waiting.split_off(&first)).unwrap_or_default();
                let next = std::mem::replace(&mut *waiting, rest);
                if !next.is_empty() {
                    return next;
                }
            }
            self.reported.notified().await;
        }
    }

    fn report_again(&self, directories: ReplicaDirectories) {
        let mut waiting = self.waiting.lock();
        for (key, directory) in directories {
            waiting.entry(key).or_insert(directory);
        }
        self.reported.notify_one();
    }
}

impl Replication {
    /// Reports the directory of a partition's log, if the controller knows another.
    pub fn report_directory(&self, partition: &Partition, known: Option<Uuid>) {
        let (topic, index) = (partition.topic_id, partition.index);
        partition.note_known_directory(known);
        if known == Some(DIRECTORY_LOST) && self.leaving.note_shown(&(topic, index)) {
            self.context.damage_found.notify_one();
        }
        if self.tracks_directories()
            && !self.directories.is_away(topic, index)
            && let Some(directory) = partition.unreported_directory(known)
        {
            let is_gone = |known: Uuid| !known.is_reserved() && !self.log_dirs.online_ids().contains(&known);
            let first = partition.place_until_known().filter(|_| known.is_some_and(is_gone));
            self.directories.report(topic, index, first.unwrap_or(directory));
            if known.is_none_or(|known| known == DIRECTORY_LOST || known == DIRECTORY_FULL) {
                self.directories.returned.lock().insert((topic, index));
            }
        }
    }

    /// Repeats the reports of returned replicas whose partitions have no leader.
    pub fn remind_of_directories(&self) {
        let (image, node_id) = (self.image.get(), self.broker.node_id);
        let returned = self.directories.returned.lock().clone();
        for (topic_id, index) in returned {
            let registration = image.partition_by_id(topic_id, index);
            let leaderless = registration.filter(|found| !found.has_leader() && found.is_replica(node_id));
            let topic = leaderless.and_then(|_| self.partitions.topic_by_id(topic_id));
            match topic.and_then(|topic| topic.partition(index)) {
                Some(partition) => self.report_directory(&partition, None),
                None => drop(self.directories.returned.lock().remove(&(topic_id, index))),
            }
        }
    }

    /// Ends a hand-over: the controller may count the replica again.
    pub fn come_back(&self, partition: &Partition) {
        self.directories.forget_away(partition.topic_id, partition.index);
        self.report_directory(partition, None);
    }

    /// True if the controller tracks directories, by its metadata version.
    pub fn tracks_directories(&self) -> bool {
        self.image.get().features().metadata_version().is_some_and(|version| version.has_directories())
    }

    /// The directory of this broker's replica in the controller's metadata.
    pub(super) fn known_directory(&self, partition: &Partition) -> Option<Uuid> {
        let image = self.image.get();
        image.partition_by_id(partition.topic_id, partition.index)?.directory(self.broker.node_id)
    }
}

/// Sends reports to the controller as long as the broker runs.
pub async fn run(replication: Arc<Replication>) {
    let mut failures = 0u32;
    loop {
        let mut directories = replication.directories.next().await;
        still_news(&mut directories, &replication.image.get(), replication.broker.node_id);
        if directories.is_empty() {
            continue;
        }
        match send(&replication, &directories).await {
            Ok(accepted) => directories.retain(|key, _| !accepted.contains(key)),
            Err(reason) if failures == 0 => {
                tracing::warn!(reason, "Failed to report replica directories, retrying");
            }
            Err(_) => {}
        }
        if directories.is_empty() {
            failures = 0;
            continue;
        }
        failures = failures.saturating_add(1);
        tokio::time::sleep(backoff(failures, RETRY_MAX)).await;
        replication.directories.report_again(directories);
    }
}

/// Gives up the replicas whose logs or records are missing, before the broker may lead. Retries until
/// `until`.
pub async fn give_up_lost(replication: &Replication, until: Instant) -> Result<(), String> {
    let lost = std::mem::take(&mut *replication.directories.lost.lock());
    if lost.is_empty() {
        return Ok(());
    }
    tracing::error!(
        partitions = lost.len(),
        first = name_of(replication, lost.keys().next().copied()),
        "Logs, or synced records of logs, are missing from an existing directory: their replicas leave the in-sync set"
    );
    give_up(replication, lost, until).await
}

/// Removes replicas from the in-sync set, and from elections until their directories are reported again.
/// Retries until the image shows the change.
pub(super) async fn give_up(
    replication: &Replication,
    mut directories: ReplicaDirectories,
    until: Instant,
) -> Result<(), String> {
    let mut failures = 0;
    while !directories.is_empty() {
        let rest = directories.keys().nth(REQUEST_PARTITIONS_MAX).copied();
        let rest = rest.map(|first| directories.split_off(&first)).unwrap_or_default();
        let accepted = send(replication, &directories).await;
        if let Ok(accepted) = &accepted {
            directories.retain(|key, _| !accepted.contains(key));
            // A topic deleted meanwhile needs no report.
            still_news(&mut directories, &replication.image.get(), replication.broker.node_id);
        }
        let is_done = directories.is_empty();
        directories.extend(rest);
        if is_done {
            continue;
        }
        if Instant::now() >= until {
            return Err(accepted.err().unwrap_or_else(|| "the controller refuses it".to_owned()));
        }
        failures += 1;
        tokio::time::sleep(backoff(failures, RETRY_MAX)).await;
    }
    Ok(())
}

fn name_of(replication: &Replication, key: Option<TopicIdPartition>) -> Option<String> {
    let (topic, partition) = key?;
    Some(format!("{}-{partition}", replication.image.get().topics().get_by_id(topic)?.name))
}

/// Drops entries whose replica is no longer on the broker, and entries that the image already shows, unless
/// there is no leader.
fn still_news(directories: &mut ReplicaDirectories, image: &Image, node_id: BrokerId) {
    directories.retain(|(topic, partition), directory| {
        let Some(found) = image.partition_by_id(*topic, *partition) else { return false };
        found.directory(node_id).is_some_and(|known| known != *directory || !found.has_leader())
    });
}

/// Sends one request; returns the entries that the controller accepted.
async fn send(
    replication: &Replication,
    directories: &ReplicaDirectories,
) -> Result<Vec<TopicIdPartition>, String> {
    let request = request(replication.broker.node_id, replication.broker.epoch(), directories);
    let version = AssignReplicasToDirsRequest::MAX_VERSION;
    let response =
        replication.broker.controller.send(request, version).await.map_err(|error| error.to_string())?;
    if response.error_code != 0 {
        return Err(format!("the controller answers {:?}", ErrorCode::from_i16(response.error_code)));
    }
    let mut accepted = Vec::new();
    for topic in response.directories.iter().flat_map(|directory| &directory.topics) {
        let taken = topic.partitions.iter().filter(|partition| partition.error_code == 0);
        accepted.extend(taken.map(|partition| (topic.topic_id, PartitionIndex(partition.partition_index))));
    }
    let (image, node_id) = (replication.image.get(), replication.broker.node_id);
    let is_known = |key: &&TopicIdPartition| {
        let known = image.partition_by_id(key.0, key.1).and_then(|found| found.directory(node_id));
        known.as_ref() == directories.get(key)
    };
    if !accepted.iter().all(|key| is_known(&key)) {
        tracing::info!(partitions = accepted.len(), "Reported replica directories to the controller");
    }
    Ok(accepted)
}

fn request(
    broker: BrokerId,
    broker_epoch: i64,
    directories: &ReplicaDirectories,
) -> AssignReplicasToDirsRequest {
    let mut by_directory: BTreeMap<Uuid, Vec<TopicData>> = BTreeMap::new();
    for ((topic_id, index), directory) in directories {
        let topics = by_directory.entry(*directory).or_default();
        let data = PartitionData { partition_index: index.0 };
        match topics.last_mut().filter(|topic| topic.topic_id == *topic_id) {
            Some(topic) => topic.partitions.push(data),
            None => topics.push(TopicData { topic_id: *topic_id, partitions: vec![data] }),
        }
    }
    let directories = by_directory.into_iter().map(|(id, topics)| DirectoryData { id, topics });
    AssignReplicasToDirsRequest { broker_id: broker.0, broker_epoch, directories: directories.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_metadata::{Delta, Provenance};
    use thalweg_wire::MetadataRecord;
    use thalweg_wire::metadata::{PartitionRecord, TopicRecord};

    #[tokio::test]
    async fn a_request_is_bounded_and_ordered_by_directory() {
        let assignments = DirectoryAssignments::default();
        for partition in 0..3000 {
            assignments.report(
                Uuid(7),
                PartitionIndex(partition),
                Uuid(100 + u128::from(partition.unsigned_abs() % 2)),
            );
        }
        let first = assignments.next().await;
        assert_eq!(first.len(), REQUEST_PARTITIONS_MAX);
        let request = request(BrokerId(1), 5, &first);
        assert_eq!(request.directories.iter().map(|d| d.id).collect::<Vec<_>>(), [Uuid(100), Uuid(101)]);
        assert_eq!(request.directories[0].topics[0].partitions.len(), REQUEST_PARTITIONS_MAX / 2);
        assert_eq!(assignments.next().await.len(), 3000 - REQUEST_PARTITIONS_MAX);
    }

    #[test]
    fn what_the_image_does_not_know_is_not_reported() {
        let mut directories = ReplicaDirectories::from([((Uuid(7), PartitionIndex(0)), Uuid(100))]);
        still_news(&mut directories, &Image::empty(), BrokerId(1));
        assert!(directories.is_empty());
    }

    #[test]
    fn known_directory_is_reported_again_while_there_is_no_leader() {
        let key = (Uuid(7), PartitionIndex(0));
        for (leader, is_reported) in [(2, false), (BrokerId::NONE.0, true)] {
            let mut delta = Delta::new(Arc::new(Image::empty()));
            let topic = TopicRecord { name: "t".to_owned(), topic_id: key.0 };
            delta.replay(&MetadataRecord::Topic(topic)).expect("it fits");
            let record = PartitionRecord {
                topic_id: key.0,
                partition_id: 0,
                leader,
                isr: vec![1, 2],
                replicas: vec![1, 2],
                directories: vec![Uuid(100), Uuid(200)],
                ..Default::default()
            };
            delta.replay(&MetadataRecord::Partition(record)).expect("it fits");
            let image = delta.apply(Provenance::EMPTY);
            let mut directories = ReplicaDirectories::from([(key, Uuid(100))]);
            still_news(&mut directories, &image, BrokerId(1));
            assert_eq!(!directories.is_empty(), is_reported, "leader {leader}");
        }
    }

    #[test]
    fn handed_over_replica_is_not_reported_from_a_directory_that_lost_records() {
        let assignments = DirectoryAssignments::default();
        assert!(assignments.hand_over(Uuid(7), PartitionIndex(0)));
        assert!(!assignments.hand_over(Uuid(7), PartitionIndex(0)), "it is already");
        let reported = assignments.waiting.lock().clone();
        assert_eq!(reported, ReplicaDirectories::from([((Uuid(7), PartitionIndex(0)), DIRECTORY_FULL)]));
    }
}
