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
    metadata_of(Some(LEADER), 3)
}

fn metadata_of(leader: Option<i32>, epoch: i32) -> Metadata {
    let partition = |index| PartitionMetadata {
        index,
        error: None,
        leader,
        leader_epoch: LeaderEpoch(epoch),
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
        last_stable_offset: Offset(next),
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
    assignment.found(&at(0), version - 1, Offset(1));
    assert!(assignment.lacks_position(), "that was found for an earlier seek");
    assignment.found(&at(0), version, Offset(2));
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

#[test]
fn a_position_is_compared_with_the_log_of_another_leader_epoch() {
    let mut assignment = reading(&[0]);
    let first = target(&assignment, 0).expect("it is read");
    assignment.apply(&metadata_of(Some(LEADER), 4));
    assert!(assignment.unvalidated().is_empty(), "the epoch of the position is not known");
    assignment.fetched(&first, Offset(15));
    assert!(assignment.hand_out(&chunk(&first, 15)));
    let ahead = target(&assignment, 0).expect("it is read");
    assignment.fetched(&ahead, Offset(20));

    // No leader, then the same leader: no change of leader.
    for leader in [None, Some(LEADER)] {
        assignment.apply(&metadata_of(leader, 4));
        assert!(assignment.unvalidated().is_empty());
    }
    assignment.apply(&metadata_of(Some(LEADER), 5));
    let [requested] = &assignment.unvalidated()[..] else { panic!("one is to be compared") };
    assert_eq!(
        (requested.offset, requested.epoch, requested.leader_epoch),
        (Offset(15), LeaderEpoch(3), LeaderEpoch(5))
    );
    assert!(
        target(&assignment, 0).is_none()
            && assignment.lacks_position()
            && assignment.uncommitted().is_empty()
    );
    assert!(!assignment.hand_out(&chunk(&ahead, 20)), "its records may be others now");
    assert!(!assignment.is_at(&at(0), Offset(15)), "it is not read, so it is not out of range");
    assert_eq!(assignment.position(&at(0)), Some(Offset(15)));

    assignment.apply(&metadata_of(Some(LEADER), 6));
    assert!(!assignment.is_unvalidated(requested), "that was another leader");
    assignment.validated(requested, Offset(15), LeaderEpoch(3));
    let [requested] = &assignment.unvalidated()[..] else { panic!("one is to be compared") };
    assignment.validated(requested, Offset(12), LeaderEpoch(2));
    let again = target(&assignment, 0).expect("it is read");
    assert_eq!((again.offset, again.leader_epoch), (Offset(12), LeaderEpoch(6)));
    assert_eq!(assignment.uncommitted()[&at(0)].leader_epoch, LeaderEpoch(2));
}

#[test]
fn a_committed_position_is_compared_where_its_epoch_is_known() {
    let committed =
        |epoch| CommittedOffset { leader_epoch: LeaderEpoch(epoch), ..CommittedOffset::new(Offset(7)) };
    let found = |epoch, of_leader| {
        let mut assignment = Assignment::default();
        assignment.add(at(0), StartAt::Committed, &metadata_of(Some(LEADER), of_leader));
        let [(_, version, _)] = assignment.without_position()[..] else { panic!("one is looked for") };
        assignment.found_committed(&at(0), version, &committed(epoch));
        assignment
    };
    for (epoch, of_leader) in [(-1, 3), (2, -1)] {
        let assignment = found(epoch, of_leader);
        assert!(
            assignment.has_valid_position(&at(0)) && target(&assignment, 0).is_some(),
            "{epoch} {of_leader}"
        );
    }
    assert_eq!(found(3, 3).unvalidated().len(), 1);
    // The metadata is stale until it has the epoch.
    let mut assignment = found(4, 3);
    assert!(assignment.without_leader().is_some() && assignment.unvalidated().is_empty());
    assignment.apply(&metadata_of(Some(LEADER), 3));
    assert!(assignment.without_leader().is_some());
    assignment.apply(&metadata_of(Some(LEADER), 4));
    assert_eq!(assignment.unvalidated().len(), 1);
    // A new topic with the same name has epochs that start over.
    let mut other = metadata_of(Some(LEADER), 0);
    other.topics.get_mut("t").expect("it is there").id = Uuid(10);
    for _ in 0..2 {
        assignment.apply(&other);
        assert_eq!(assignment.unvalidated()[0].leader_epoch, LeaderEpoch(0));
    }
    // A seek is the caller's decision.
    assignment.seek(&at(0), StartAt::Offset(Offset(7)));
    assert!(assignment.has_valid_position(&at(0)));
}

#[test]
fn a_topic_that_is_not_subscribed_to_any_more_is_not_read() {
    let mut assignment = reading(&[0]);
    let topics = |topic: &str| Some(BTreeSet::from([topic.to_owned()]));
    assignment.subscribe(topics("t"));
    let first = target(&assignment, 0).expect("it is read");
    assignment.fetched(&first, Offset(15));
    assignment.subscribe(topics("u"));
    assignment.add(at(1), StartAt::Offset(Offset(10)), &metadata());
    assert!(target(&assignment, 0).is_none() && target(&assignment, 1).is_none());
    assert!(!assignment.hand_out(&chunk(&first, 15)));
    assert_eq!(assignment.position(&at(0)), Some(Offset(10)), "it can be committed until it is given up");
    assignment.subscribe(topics("t"));
    assert_eq!(target(&assignment, 0).expect("it goes on").offset, Offset(10));
    assignment.subscribe(topics("u"));
    assignment.subscribe(None);
    assert!(target(&assignment, 0).is_some() && target(&assignment, 1).is_some());
}

#[test]
fn a_partition_waits_for_its_group_before_its_leader() {
    let mut assignment = Assignment::default();
    assignment.add(at(0), StartAt::Committed, &metadata_of(None, 3));
    let [(_, version, StartAt::Committed)] = assignment.without_position()[..] else { panic!("it has none") };
    assert!(!assignment.lacks_leader_offset(&at(0)), "the committed offset is unknown");
    assignment.found_uncommitted(&at(0), version - 1, OffsetSpec::Latest);
    assert!(!assignment.lacks_leader_offset(&at(0)), "that was found for an earlier seek");
    assignment.found_uncommitted(&at(0), version, OffsetSpec::Earliest);
    assert!(assignment.lacks_leader_offset(&at(0)));
    assert_eq!(assignment.without_position(), [(at(0), version, StartAt::Spec(OffsetSpec::Earliest))]);
    assignment.found(&at(0), version, Offset(2));
    assert!(!assignment.lacks_leader_offset(&at(0)), "it has a position");
}
