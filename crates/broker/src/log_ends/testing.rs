//! An undecided partition, and answers, for the tests of these modules.

use std::collections::BTreeMap;

use super::choice::{Answer, LogEnd};
use thalweg_controller::UndecidedPartition;
use thalweg_metadata::{BrokerId, PartitionEpoch, PartitionIndex};

pub(super) fn undecided(candidates: &[i32], awaited: &[i32], last_leader: Option<i32>) -> UndecidedPartition {
    UndecidedPartition {
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

/// The answers of replicas: each with an epoch and a log end.
pub(super) fn ends(ends: &[(i32, i32, i64)]) -> BTreeMap<BrokerId, Answer> {
    let answer = |(id, epoch, offset): &(i32, i32, i64)| {
        (BrokerId(*id), Ok(LogEnd { epoch: *epoch, offset: *offset }))
    };
    ends.iter().map(answer).collect()
}
