//! What becomes of a broker whose data directories fail or fill up: the controller is told of those that have failed, and
//! has others lead while there is no room anywhere. Refuses to give up what nobody else has: where disks fill up together,
//! each partition keeps a leader from which it can be read, and is written again once that one has room.

use crate::broker::Broker;
use crate::membership::Membership;
use crate::server::wire_uuid;
use std::time::Duration;
use thalweg_metadata::{Image, NO_LEADER};

/// How often they are looked at.
const DIRECTORY_CHECK: Duration = Duration::from_secs(1);

/// Watches the directories that were online at the start; returns when none is left.
pub async fn watch_directories(broker: &Broker, membership: &Membership, directories: &[thalweg_log::Uuid]) {
    let mut reported = Vec::new();
    loop {
        tokio::time::sleep(DIRECTORY_CHECK).await;
        let online = broker.log_dirs.online_ids();
        if online.is_empty() {
            return;
        }
        let failed = directories.iter().filter(|id| !online.contains(id));
        let failed: Vec<_> = failed.map(|id| wire_uuid(*id)).collect();
        if failed != reported {
            membership.report_offline(failed.clone());
            reported = failed;
        }
        broker.log_dirs.look_for_room();
        let withdrawn = broker.log_dirs.are_full() && !is_needed(&broker.image(), broker.node_id);
        if membership.withdraw(withdrawn) {
            tell(withdrawn);
        }
    }
}

fn tell(withdrawn: bool) {
    if withdrawn {
        tracing::warn!(
            "No directory has room: the broker asks to be fenced, so that others lead its partitions"
        );
    } else {
        tracing::info!("There is room: the broker asks to be unfenced");
    }
}

/// Whether the cluster has some partition that nobody but this broker may lead: one that it leads with no other in sync, or
/// one without a leader that waits for it. Brokers whose disks fill at the same time may each have counted on the other.
fn is_needed(image: &Image, node_id: i32) -> bool {
    let mut partitions = image.topics().iter().flat_map(|topic| topic.partitions.values());
    partitions.any(|partition| match partition.leader {
        NO_LEADER => {
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
        assert!(!is_needed(&image(&[(1, &[1, 2]), (2, &[2])]), 1));
        assert!(is_needed(&image(&[(1, &[1, 2]), (1, &[1])]), 1));
        assert!(!is_needed(&image(&[]), 1), "it leads nothing");
    }

    #[test]
    fn a_broker_comes_back_for_what_nobody_leads_without_it() {
        let others_gave_up_too = image(&[(2, &[2]), (NO_LEADER, &[1])]);
        assert!(is_needed(&others_gave_up_too, 1));
        assert!(!is_needed(&others_gave_up_too, 3), "it is not in sync and could not lead");
    }
}
