//! An undecided partition for the tests of these modules.

use thalweg_controller::Undecided;
use thalweg_metadata::{BrokerId, PartitionEpoch, PartitionIndex};

pub(super) fn undecided(candidates: &[i32], awaited: &[i32], last_leader: Option<i32>) -> Undecided {
    Undecided {
        topic: "t".into(),
        topic_id: thalweg_wire::Uuid(7),
        partition: PartitionIndex(0),
        partition_epoch: PartitionEpoch(1),
        leader_epoch: 9,
        candidates: BrokerId::list(candidates),
        awaited: BrokerId::list(awaited),
        starting: Vec::new(),
        last_leader: last_leader.map(BrokerId),
    }
}
