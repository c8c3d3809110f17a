//! Handles failed and full data directories: failed ones are reported to the controller, and other brokers serve what
//! finds no room here: they lead it, and do not wait for the replica here.
//!
//! Owns: the decision, for the whole broker while none of its directories has room and each of its partitions has
//! another leader, and otherwise partition by partition. Refuses to hand over partitions without another replica in
//! sync: if disks fill up together, each partition keeps a leader for reads, and for writes once that one has room.

use crate::broker::Broker;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use thalweg_log::Uuid;
use thalweg_membership::Membership;
use thalweg_metadata::{BrokerId, Image, PartitionIndex, PartitionRegistration};
use thalweg_replica::partition::Partition;
use tokio::time::Instant;

/// Interval of the check.
const DIRECTORY_CHECK: Duration = Duration::from_secs(1);
/// How long a directory has had room before its partitions come back: one that fills up again at once, as where it lacks
/// something other than bytes, must not move its leaders each second.
const CALM: Duration = Duration::from_secs(10);
/// How many partitions a line of the log names.
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
        // Not at once: a disk that lacks something other than bytes would be full again with the next append.
        if is_in_time {
            broker.log_dirs.look_for_room();
        }
        let (image, is_full) = (broker.image(), broker.log_dirs.are_full());
        let lower = image.cluster().brokers.range(..broker.node_id).count();
        let withdrawn = stance.withdraws(is_full, is_needed(&image, broker.node_id), lower);
        if membership.withdraw(withdrawn) {
            tell(withdrawn, is_full);
        }
        full.relieve(broker, &image, withdrawn);
        broker.replication.remind_of_directories();
    }
}

/// Whether other replicas can go on without the one of this broker, which is in sync.
pub(crate) fn can_be_spared(partition: &PartitionRegistration, node_id: BrokerId) -> bool {
    need_of(partition, node_id) == Need::Spared
}

/// Whether a partition needs the replica of a broker whose directory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Others in sync can lead, or one of them does, and waits for this one with each record.
    Spared,
    /// It leads, and no other is in sync.
    OnlyLeader,
    /// It is not in sync, so that no leader waits for it; or there is no leader.
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
    /// When each was seen without room last.
    seen: BTreeMap<Uuid, Instant>,
    /// The partitions that stay, as the last line of the log has them.
    staying: BTreeSet<(Uuid, PartitionIndex)>,
}

impl FullDirectories {
    /// Hands over the partitions that others can serve, and takes back those whose directories have had room for a while.
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
                    // A leader without such reports waits for a follower for `replica.lag.time.max.ms`.
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
        self.say(broker, &handed_over, &stay);
    }

    fn take_back(&self, broker: &Broker, image: &Image) {
        let (replication, online) = (&broker.replication, broker.log_dirs.online_ids());
        for (topic, index) in replication.directories.away() {
            let registration = image.partition_by_id(topic, index);
            if registration.is_none_or(|registration| !registration.is_replica(broker.node_id)) {
                replication.directories.forget_away(topic, index);
                continue;
            }
            // One that could not be created for lack of room is tried again elsewhere.
            let found = broker.partitions.topic_by_id(topic).and_then(|topic| topic.partition(index));
            let Some(partition) = found else { continue };
            let directory = partition.with_log(|log| log.directory_id());
            // The controller must know a failed directory as such: otherwise the next start does not miss its logs.
            let has_failed = |directory: &Uuid| !online.contains(directory);
            let has_room = directory
                .is_some_and(|directory| !self.seen.contains_key(&directory) || has_failed(&directory));
            if has_room || registration.is_some_and(|registration| waits_for(registration, broker.node_id)) {
                tracing::info!(?partition, has_room, "Taking part in replication again");
                replication.come_back(&partition);
            }
        }
    }

    /// One line for all, when something has changed.
    fn say(&mut self, broker: &Broker, handed_over: &[Arc<Partition>], stay: &[Arc<Partition>]) {
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

fn tell(withdrawn: bool, is_full: bool) {
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

/// Whether a broker with full directories has handed over.
#[derive(Debug, Default)]
struct Stance {
    has_given_up: bool,
    /// Number of further checks to wait before handing over.
    stays: usize,
}

impl Stance {
    /// Whether it hands over now, or still. A broker that had to return has met others that handed over at the same
    /// time. Each then waits as many checks as there are brokers with lower ids: one goes first, and the others see
    /// that they are needed.
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

/// Whether some partition can only be led by this broker: it leads it without another in-sync replica, or the
/// leaderless partition waits for it. Brokers whose disks fill up at the same time may each have counted on the
/// other.
fn is_needed(image: &Image, node_id: BrokerId) -> bool {
    let mut partitions = image.topics().iter().flat_map(|topic| topic.partitions.values());
    partitions
        .any(|partition| waits_for(partition, node_id) || need_of(partition, node_id) == Need::OnlyLeader)
}

/// Whether a partition has no leader, and this replica could be it.
fn waits_for(partition: &PartitionRegistration, node_id: BrokerId) -> bool {
    partition.leader == BrokerId::NONE && partition.may_lead_cleanly(node_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_metadata::{Delta, Provenance};
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

    /// Two brokers that check at the same time, where either can be spared.
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
