use std::time::Duration;

use super::*;
use crate::metadata::{BrokerAddress, PartitionMetadata, TopicMetadata};
use crate::offsets::OffsetSpec;

const LEADER: i32 = 1;
const FOLLOWER: i32 = 2;

fn at(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

fn metadata() -> Metadata {
    let partition = |index| PartitionMetadata {
        index,
        error: None,
        leader: Some(LEADER),
        leader_epoch: LeaderEpoch(3),
        replicas: vec![LEADER, FOLLOWER],
        isr: vec![LEADER, FOLLOWER],
        offline: Vec::new(),
    };
    let topic = TopicMetadata {
        name: "t".into(),
        id: Uuid(9),
        internal: false,
        error: None,
        partitions: (0..3).map(partition).collect(),
    };
    let broker = |id| (id, BrokerAddress { id, host: "h".to_owned(), port: 1, rack: None });
    Metadata {
        brokers: [LEADER, FOLLOWER].map(broker).into(),
        topics: BTreeMap::from([("t".to_owned(), topic)]),
        ..Metadata::default()
    }
}

fn reading(partitions: &[i32]) -> Assignment {
    let mut assignment = Assignment::default();
    for partition in partitions {
        assignment.add(at(*partition), StartAt::Offset(Offset(10)), &metadata());
    }
    assignment
}

fn target(assignment: &Assignment, partition: i32) -> Option<Target> {
    let targets = assignment.targets(LEADER, Instant::now());
    targets.into_iter().find(|target| target.at == at(partition))
}

fn chunk(target: &Target, next: i64) -> Chunk {
    Chunk {
        at: target.at.clone(),
        bytes: bytes::Bytes::new(),
        start: target.offset,
        next: Offset(next),
        leader_epoch: LeaderEpoch(3),
        high_watermark: Offset(next),
        aborted: Vec::new(),
        check_crcs: false,
        version: target.version,
    }
}

#[test]
fn a_fetch_runs_ahead_of_what_is_handed_out() {
    let mut assignment = reading(&[0]);
    let first = target(&assignment, 0).expect("its leader and offset are known");
    assert_eq!((first.offset, first.leader_epoch, first.topic_id), (Offset(10), LeaderEpoch(3), Uuid(9)));
    assert!(assignment.fetched(&first, Offset(15)));
    assert_eq!(target(&assignment, 0).expect("it goes on").offset, Offset(15));
    assert_eq!(assignment.position(&at(0)), Some(Offset(10)), "nothing was handed out");
    assert!(assignment.hand_out(&chunk(&first, 15)));
    let uncommitted = assignment.uncommitted();
    assert_eq!((uncommitted[&at(0)].offset, uncommitted[&at(0)].leader_epoch), (Offset(15), LeaderEpoch(3)));
    assignment.committed(&uncommitted);
    assert!(assignment.uncommitted().is_empty());
    assert!(!assignment.fetched(&first, Offset(15)), "an answer counts once");
}

#[test]
fn a_seek_makes_what_is_under_way_stale() {
    let mut assignment = reading(&[0]);
    let before = target(&assignment, 0).expect("it is read");
    assignment.seek(&at(0), StartAt::Offset(Offset(10)));
    assert_eq!(target(&assignment, 0).expect("it is where it was"), before);
    assignment.seek(&at(0), StartAt::Offset(Offset(11)));
    assignment.seek(&at(0), StartAt::Offset(Offset(10)));
    assert!(!assignment.fetched(&before, Offset(15)), "though the offset is the same");
    assert!(!assignment.hand_out(&chunk(&before, 15)));
    assignment.seek(&at(0), StartAt::Spec(OffsetSpec::Earliest));
    assert_eq!(
        (target(&assignment, 0), assignment.position(&at(0))),
        (None, None),
        "it is not known where to"
    );
    let [(_, version, _)] = assignment.without_position()[..] else { panic!("one is looked for") };
    assignment.found(&at(0), version - 1, Offset(1), false);
    assert!(assignment.lacks_position(), "that was found for an earlier seek");
    assignment.found(&at(0), version, Offset(2), false);
    assert_eq!(target(&assignment, 0).expect("it goes on").offset, Offset(2));
}

#[test]
fn a_paused_partition_goes_on_with_what_was_not_handed_out() {
    let mut assignment = reading(&[0, 1]);
    let before = target(&assignment, 0).expect("it is read");
    assignment.fetched(&before, Offset(15));
    assignment.pause(&[at(0)], true);
    assert_eq!(assignment.paused(), [at(0)]);
    assert!(target(&assignment, 0).is_none() && target(&assignment, 1).is_some());
    assert!(!assignment.hand_out(&chunk(&before, 15)));
    assert!(assignment.brokers(Instant::now()).contains(&LEADER), "the connection stays");
    assignment.pause(&[at(0)], false);
    assert_eq!(target(&assignment, 0).expect("it goes on").offset, Offset(10));
}

#[test]
fn revoked_partitions_can_be_committed_until_they_are_given_up() {
    let mut assignment = reading(&[0, 1]);
    assignment.revoke(&[at(0)]);
    assert!(target(&assignment, 0).is_none());
    assert_eq!(assignment.iter().collect::<Vec<_>>(), [&at(1)]);
    assert!(assignment.uncommitted().contains_key(&at(0)));
    assignment.give_up_revoked();
    assert!(!assignment.contains(&at(0)) && assignment.contains(&at(1)));
    assert_eq!(assignment.remove(&[at(0), at(1)]), [at(1)]);
}

#[test]
fn a_follower_is_read_until_it_lacks_an_offset_or_its_time_is_up() {
    let mut assignment = reading(&[0]);
    let now = Instant::now();
    let of_leader = target(&assignment, 0).expect("it is read");
    assignment.prefer_replica(&of_leader, FOLLOWER, now + Duration::from_secs(60));
    assert!(target(&assignment, 0).is_none());
    let of_follower = assignment.targets(FOLLOWER, now).pop().expect("the follower is read");
    assert_eq!(
        assignment.targets(LEADER, now + Duration::from_secs(61)).len(),
        1,
        "the leader is asked again"
    );
    assert!(!assignment.out_of_range(&of_follower), "the leader may have it");
    assert!(assignment.out_of_range(&target(&assignment, 0).expect("the leader is read")));
    assignment.prefer_replica(&of_leader, FOLLOWER, now + Duration::from_secs(60));
    let mut without = metadata();
    without.brokers.remove(&FOLLOWER);
    assignment.apply(&without);
    assert!(target(&assignment, 0).is_some(), "the follower is gone");
}

#[test]
fn a_partition_without_a_leader_is_read_when_it_has_one() {
    let mut assignment = reading(&[0]);
    let before = target(&assignment, 0).expect("it is read");
    assignment.leader_lost(&before);
    assert!(assignment.without_leader().is_some() && target(&assignment, 0).is_none());
    assignment.apply(&metadata());
    assert!(assignment.without_leader().is_none());
    assert_eq!(target(&assignment, 0), Some(before));
}
