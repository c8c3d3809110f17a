//! Handles failed and full data directories. Failed directories are reported to the controller. Partitions in
//! full directories are handed over: other brokers lead them, and do not wait for the replica here.
//!
//! The whole broker hands over if no directory has room and each of its partitions can have another leader.
//! Otherwise each partition is decided alone. A partition without another in-sync replica is not handed over:
//! if disks fill up together, each partition keeps a leader for reads, and for writes once that leader has
//! room.

use crate::broker::Broker;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use thalweg_log::Uuid;
use thalweg_membership::Membership;
use thalweg_metadata::{BrokerId, Image, PartitionRegistration, TopicIdPartition};
use thalweg_replica::partition::Partition;
use tokio::time::Instant;

/// Interval of the check.
const DIRECTORY_CHECK: Duration = Duration::from_secs(1);
/// Time that a directory must have room before its partitions return. A directory that fills up again
/// immediately, for example for lack of inodes, must not move its leaders every second.
const CALM: Duration = Duration::from_secs(10);
/// Maximum number of partitions named in a log line.
const NAMED_MAX: usize = 10;

/// Watches the directories that were online at the start; returns when none is left.
pub async fn watch_directories(broker: &Broker, membership: &Membership, directories: &[Uuid]) {
    let mut reported = Vec::new();
    let mut stance = Stance::default();
    let mut full = FullDirectories::default();
    loop {
        let is_in_time = tokio::select! {
            biased;
            () = broker.log_dirs.troubled() => false,
            () = tokio::time::sleep(DIRECTORY_CHECK) => true,
        };
        let online = broker.log_dirs.online_ids();
        if online.is_empty() {
            return;
        }
        let failed = directories.iter().filter(|id| !online.contains(id));
        let failed: Vec<_> = failed.copied().collect();
        if failed != reported {
            membership.report_offline(failed.clone());
            reported = failed;
        }
        // Return after a delay: a disk without free inodes would be full again with the next append.
        if is_in_time {
            broker.log_dirs.look_for_room();
        }
        let (image, is_full) = (broker.image(), broker.log_dirs.are_full());
        let lower = image.cluster().brokers.range(..broker.node_id).count();
        let withdrawn = stance.withdraws(is_full, is_needed(&image, broker.node_id), lower);
        if membership.withdraw(withdrawn) {
            log_withdrawal(withdrawn, is_full);
        }
        full.relieve(broker, &image, withdrawn);
        broker.replication.remind_of_directories();
    }
}

/// True if this broker's replica is in sync and the other replicas can continue without it.
pub(crate) fn can_be_spared(partition: &PartitionRegistration, node_id: BrokerId) -> bool {
    need_of(partition, node_id) == Need::Spared
}

/// The role of a replica in a full directory for its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Another in-sync replica leads or can lead. As long as this replica is in sync, each record waits for
    /// it.
    Spared,
    /// The replica leads, and no other replica is in sync.
    OnlyLeader,
    /// The replica is not in sync, so no leader waits for it, or there is no leader.
    Outside,
}

fn need_of(partition: &PartitionRegistration, node_id: BrokerId) -> Need {
    match partition.leader {
        BrokerId::NONE => Need::Outside,
        leader if leader == node_id && partition.isr.len() == 1 => Need::OnlyLeader,
        _ if partition.isr.contains(&node_id) => Need::Spared,
        _ => Need::Outside,
    }
}

/// The directories without room, and the partitions that stay in them.
#[derive(Debug, Default)]
struct FullDirectories {
    /// Time of the last check that found a directory without room.
    seen: BTreeMap<Uuid, Instant>,
    /// The staying partitions in the last log line.
    staying: BTreeSet<TopicIdPartition>,
}

impl FullDirectories {
    /// Hands over partitions that other brokers can serve, and takes back partitions with room in their
    /// directories.
    fn relieve(&mut self, broker: &Broker, image: &Image, withdrawn: bool) {
        let now = Instant::now();
        let full = broker.log_dirs.full_ids();
        self.seen.extend(full.iter().map(|id| (*id, now)));
        self.seen.retain(|_, at| now.duration_since(*at) < CALM);
        self.take_back(broker, image);
        if full.is_empty() || withdrawn {
            self.staying.clear();
            return;
        }
        let (mut handed_over, mut stay) = (Vec::new(), Vec::new());
        for partition in broker.partitions.all() {
            let directory = partition.with_log(|log| log.directory_id());
            let registration = image.partition_by_id(partition.topic_id, partition.index);
            let Some(registration) = registration.filter(|_| directory.is_some_and(|id| full.contains(&id)))
            else {
                continue;
            };
            let directories = &broker.replication.directories;
            match need_of(registration, broker.node_id) {
                Need::Spared if !broker.replication.tracks_directories() => {
                    // Without directory assignments, a leader waits for a full follower up to
                    // `replica.lag.time.max.ms`.
                    if registration.leader == broker.node_id {
                        stay.push(partition);
                    }
                }
                Need::Spared => {
                    if directories.hand_over(partition.topic_id, partition.index) {
                        handed_over.push(partition);
                    }
                }
                Need::OnlyLeader => stay.push(partition),
                Need::Outside => {}
            }
        }
        self.log_change(broker, &handed_over, &stay);
    }

    fn take_back(&self, broker: &Broker, image: &Image) {
        let (replication, online) = (&broker.replication, broker.log_dirs.online_ids());
        for (topic, index) in replication.directories.away() {
            let registration = image.partition_by_id(topic, index);
            if registration.is_none_or(|registration| !registration.is_replica(broker.node_id)) {
                replication.directories.forget_away(topic, index);
                continue;
            }
            // The publisher retries a partition that was not created for lack of room.
            let found = broker.partitions.topic_by_id(topic).and_then(|topic| topic.partition(index));
            let Some(partition) = found else { continue };
            let directory = partition.with_log(|log| log.directory_id());
            // The controller must see the failed directory, so that the next start notices the missing logs.
            let has_failed = |directory: &Uuid| !online.contains(directory);
            let has_room = directory
                .is_some_and(|directory| !self.seen.contains_key(&directory) || has_failed(&directory));
            if has_room || registration.is_some_and(|registration| waits_for(registration, broker.node_id)) {
                tracing::info!(?partition, has_room, "Taking part in replication again");
                replication.come_back(&partition);
            }
        }
    }

    /// Logs one line for all partitions after a change.
    fn log_change(&mut self, broker: &Broker, handed_over: &[Arc<Partition>], stay: &[Arc<Partition>]) {
        let staying: BTreeSet<_> =
            stay.iter().map(|partition| (partition.topic_id, partition.index)).collect();
        let is_news = !handed_over.is_empty() || !staying.is_subset(&self.staying);
        self.staying = staying;
        if !is_news {
            return;
        }
        let why = match broker.replication.tracks_directories() {
            true => "no other replica is in sync",
            false => "the metadata version knows no directories",
        };
        tracing::warn!(
            handed_over = handed_over.len(),
            partitions = %names(handed_over),
            staying = stay.len(),
            stay = %names(stay),
            why,
            "Log directories without room: other brokers serve their partitions alone, except those that stay"
        );
    }
}

fn names(partitions: &[Arc<Partition>]) -> String {
    let named: Vec<_> = partitions.iter().take(NAMED_MAX).map(|partition| format!("{partition:?}")).collect();
    let more = if partitions.len() > NAMED_MAX { ", ..." } else { "" };
    format!("{}{more}", named.join(", "))
}

fn log_withdrawal(withdrawn: bool, is_full: bool) {
    if withdrawn {
        tracing::warn!("No log directory has room: asking to be fenced, so that other brokers lead");
    } else if is_full {
        tracing::info!(
            "No other broker can lead some partitions: asking to be unfenced although no log directory has room"
        );
    } else {
        tracing::info!("Log directories have room: asking to be unfenced");
    }
}

/// The decision of a broker with full directories to hand over.
#[derive(Debug, Default)]
struct Stance {
    has_given_up: bool,
    /// Number of further checks to wait before handing over.
    stays: usize,
}

impl Stance {
    /// Updates the decision, and returns true if the broker hands over. Brokers that hand over at the same
    /// time have to return. Each of these then waits one check per broker with a lower id, so that one broker
    /// hands over first, and the next brokers notice that partitions need them.
    fn withdraws(&mut self, is_full: bool, is_needed: bool, lower: usize) -> bool {
        if !is_full {
            *self = Stance::default();
        } else if is_needed {
            if self.has_given_up {
                *self = Stance { has_given_up: false, stays: lower };
            }
        } else if self.stays > 0 {
            self.stays -= 1;
        } else {
            self.has_given_up = true;
        }
        self.has_given_up
    }
}

/// True if only this broker can lead some partition: as leader without another in-sync replica, or as the
/// replica that a leaderless partition waits for. Brokers whose disks fill up at the same time may have
/// counted on each other.
fn is_needed(image: &Image, node_id: BrokerId) -> bool {
    let mut partitions = image.topics().iter().flat_map(|topic| topic.partitions.values());
    partitions
        .any(|partition| waits_for(partition, node_id) || need_of(partition, node_id) == Need::OnlyLeader)
}

/// True if a partition has no leader and this replica may lead.
fn waits_for(partition: &PartitionRegistration, node_id: BrokerId) -> bool {
    partition.leader == BrokerId::NONE && partition.may_lead_cleanly(node_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_metadata::{Delta, PartitionIndex, Provenance};
    use thalweg_wire::metadata::{PartitionRecord, TopicRecord};
    use thalweg_wire::{MetadataRecord, Uuid};

    fn image(partitions: &[(i32, &[i32])]) -> Arc<Image> {
        let topic_id = Uuid(7);
        let mut delta = Delta::new(Arc::new(Image::empty()));
        let topic = TopicRecord { name: "t".to_owned(), topic_id };
        delta.replay(&MetadataRecord::Topic(topic)).expect("it fits");
        for (partition_id, (leader, isr)) in (0..).zip(partitions) {
            let (leader, isr, replicas) = (*leader, isr.to_vec(), vec![1, 2, 3]);
            let record =
                PartitionRecord { topic_id, partition_id, leader, isr, replicas, ..Default::default() };
            delta.replay(&MetadataRecord::Partition(record)).expect("it fits");
        }
        delta.apply(Provenance::EMPTY)
    }

    #[test]
    fn a_broker_gives_up_only_what_others_have() {
        assert!(!is_needed(&image(&[(1, &[1, 2]), (2, &[2])]), BrokerId(1)));
        assert!(is_needed(&image(&[(1, &[1, 2]), (1, &[1])]), BrokerId(1)));
        assert!(!is_needed(&image(&[]), BrokerId(1)), "it leads nothing");
    }

    #[test]
    fn partitions_of_a_full_directory_stay_only_if_no_other_is_in_sync() {
        let image = image(&[(1, &[1, 2]), (1, &[1]), (2, &[1, 2]), (2, &[2, 3]), (BrokerId::NONE.0, &[1])]);
        let need = |index| {
            let partition = image.partition("t", PartitionIndex(index)).expect("it is there");
            need_of(partition, BrokerId(1))
        };
        assert_eq!(
            (0..5).map(need).collect::<Vec<_>>(),
            [Need::Spared, Need::OnlyLeader, Need::Spared, Need::Outside, Need::Outside]
        );
    }

    /// Two brokers that check at the same time, and either can hand over.
    #[test]
    fn of_brokers_that_fill_up_at_the_same_time_one_stays() {
        let mut stances = [Stance::default(), Stance::default()];
        let mut gone = [false; 2];
        let mut look = |is_full: bool| {
            let seen = gone;
            for (at, stance) in stances.iter_mut().enumerate() {
                gone[at] = stance.withdraws(is_full, seen[1 - at], 1 + at);
            }
            gone
        };
        assert_eq!(look(false), [false, false]);
        let looks: Vec<_> = (0..8).map(|_| look(true)).collect();
        assert_eq!(looks[..2], [[true, true], [false, false]], "both go, and find that both are needed");
        assert_eq!(looks[3..], [[true, false]; 5]);
        assert_eq!(look(false), [false, false]);
    }

    #[test]
    fn a_broker_comes_back_for_what_nobody_leads_without_it() {
        let others_gave_up_too = image(&[(2, &[2]), (BrokerId::NONE.0, &[1])]);
        assert!(is_needed(&others_gave_up_too, BrokerId(1)));
        assert!(!is_needed(&others_gave_up_too, BrokerId(3)), "it is not in sync and could not lead");
    }
}
