//! Handles failed and full data directories: failed ones are reported to the controller, and the broker hands
//! leadership over while none has room. Refuses to hand over partitions without another replica: if disks fill up
//! together, each partition keeps a leader for reads, and for writes once that one has room.

use crate::broker::Broker;
use std::time::Duration;
use thalweg_membership::Membership;
use thalweg_metadata::{BrokerId, Image};

/// Interval of the check.
const DIRECTORY_CHECK: Duration = Duration::from_secs(1);

/// Watches the directories that were online at the start; returns when none is left.
pub async fn watch_directories(broker: &Broker, membership: &Membership, directories: &[thalweg_log::Uuid]) {
    let mut reported = Vec::new();
    let mut stance = Stance::default();
    loop {
        tokio::time::sleep(DIRECTORY_CHECK).await;
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
        broker.log_dirs.look_for_room();
        let (image, is_full) = (broker.image(), broker.log_dirs.are_full());
        let lower = image.cluster().brokers.range(..broker.node_id).count();
        let withdrawn = stance.withdraws(is_full, is_needed(&image, broker.node_id), lower);
        if membership.withdraw(withdrawn) {
            tell(withdrawn, is_full);
        }
    }
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
    partitions.any(|partition| match partition.leader {
        BrokerId::NONE => {
            partition.isr.contains(&node_id) || partition.eligible_leader_replicas.contains(&node_id)
        }
        leader => leader == node_id && partition.isr.len() <= 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
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
