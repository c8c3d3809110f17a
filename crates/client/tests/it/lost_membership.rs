//! Commits at the edges of a membership: before a rebalance, after a loss, and without a membership. A
//! consumer that has lost its membership commits nothing, and its last identity fences its transactions.

use std::sync::atomic::Ordering;
use std::time::Duration;

use thalweg_client::{
    CommittedOffset, Consumer, ConsumerConfig, ConsumerError, GroupMetadata, PollEvent, StartAt,
    TopicPartition,
};
use thalweg_record::Offset;
use thalweg_wire::{ApiKey, ErrorCode};
use tokio::time::Instant;

use crate::consumer_groups::Coordinator;
use crate::fake::TOPIC;
use crate::groups::{Brokers, assigned, consumer_of, member, next};

/// Longer than `max.poll.interval.ms` of [`impatient`].
const STALL: Duration = Duration::from_secs(60);

fn impatient() -> ConsumerConfig {
    ConsumerConfig { rebalance_timeout: Duration::from_secs(20), ..ConsumerConfig::default() }
}

fn at() -> TopicPartition {
    TopicPartition::new(TOPIC, 0)
}

/// Moves the position, so that there is an offset to commit, and lets time pass without a poll.
async fn stall(consumer: &mut Consumer) -> GroupMetadata {
    consumer.seek(&at(), Offset(9));
    let before = consumer.group_metadata().expect("it has a group");
    tokio::time::sleep(STALL).await;
    before
}

/// Commits, which a rebalance prevents, and checks the identity for transactions.
async fn commit_fails(consumer: &mut Consumer, before: &GroupMetadata) {
    let error = consumer.commit().await.expect_err("it is no member");
    assert!(matches!(&error, ConsumerError::CommitFailed(failed) if failed.by == *before), "{error}");
    assert!(error.to_string().contains("rebalance") && !error.is_retriable(), "{error}");
    assert_eq!(consumer.group_metadata().expect("it has a group"), *before, "the coordinator fences it");
}

#[tokio::test(start_paused = true)]
async fn a_member_that_has_lost_its_membership_commits_nothing() {
    for error in [None, Some(ErrorCode::UnknownMemberId), Some(ErrorCode::IllegalGeneration)] {
        let brokers = Brokers::default();
        let mut consumer = member(&brokers, impatient()).await;
        if let Some(error) = error {
            brokers.next_heartbeat(error);
        }
        let before = stall(&mut consumer).await;
        assert_eq!((before.member_id.as_str(), before.generation), ("member", 1));
        commit_fails(&mut consumer, &before).await;
        assert_eq!(brokers.count(ApiKey::OffsetCommit), 0, "{error:?}");
        assert_eq!(brokers.count(ApiKey::JoinGroup), 1, "{error:?}: the loss is not reported yet");

        assert!(matches!(next(&mut consumer).await, PollEvent::Lost(_)), "{error:?}");
        consumer.commit().await.expect("there is nothing to commit");
        assert!(matches!(next(&mut consumer).await, PollEvent::Assigned(_)), "{error:?}");
        assert_eq!(consumer.group_metadata().expect("a member").generation, 2);
        consumer.seek(&at(), Offset(9));
        consumer.commit().await.expect("committed");
        assert_eq!(*brokers.committers.lock().expect("no panic"), [("member".to_owned(), 2)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_without_its_epoch_commits_nothing() {
    for error in [None, Some(ErrorCode::UnknownMemberId), Some(ErrorCode::FencedMemberEpoch)] {
        let coordinator = Coordinator::new();
        let mut consumer = coordinator.member(impatient()).await;
        if let Some(error) = error {
            coordinator.refuse(error);
        }
        let before = stall(&mut consumer).await;
        assert_eq!(before.generation, 1);
        commit_fails(&mut consumer, &before).await;
        assert!(coordinator.commits.lock().expect("no panic").is_empty(), "{error:?}");
        let joins = coordinator.beats().iter().filter(|beat| beat.member_epoch == 0).count();
        assert_eq!(joins, 1, "{error:?}: the loss is not reported yet");
    }
}

#[tokio::test(start_paused = true)]
async fn the_coordinators_refusal_of_a_member_is_a_failed_commit() {
    let brokers = Brokers::default();
    let mut consumer = member(&brokers, ConsumerConfig::default()).await;
    brokers.refuse_commit(ErrorCode::IllegalGeneration);
    consumer.seek(&at(), Offset(9));
    let error = consumer.commit().await.expect_err("another generation");
    assert!(matches!(error, ConsumerError::CommitFailed(_)), "{error}");
    assert_eq!(error.error_code(), Some(ErrorCode::IllegalGeneration));
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_has_not_joined_commits_nothing() {
    let brokers = Brokers::default();
    let mut consumer = consumer_of(&brokers, ConsumerConfig::default()).await;
    consumer.subscribe(vec![TOPIC.to_owned()]).expect("it has a group");
    let offsets = [(at(), CommittedOffset::new(Offset(9)))];
    let error = consumer.commit_offsets(offsets.into()).await.expect_err("it is no member");
    assert!(matches!(error, ConsumerError::CommitFailed(_)), "{error}");
    assert_eq!(brokers.count(ApiKey::OffsetCommit), 0);
}

#[tokio::test(start_paused = true)]
async fn automatic_commits_end_with_the_membership() {
    for polls in [true, false] {
        let brokers = Brokers::default();
        let mut consumer = consumer_of(&brokers, impatient()).await;
        consumer.subscribe(vec![TOPIC.to_owned()]).expect("it has a group");
        let mut consumer = assigned(consumer).await;
        stall(&mut consumer).await;
        if polls {
            assert!(matches!(next(&mut consumer).await, PollEvent::Lost(_)));
        }
        consumer.close().await.expect("it has left");
        assert_eq!(brokers.count(ApiKey::OffsetCommit), 0, "others read its partitions");
    }
}

#[tokio::test(start_paused = true)]
async fn the_commit_before_a_rebalance_outlasts_its_poll() {
    for refused in [None, Some(ErrorCode::UnknownServerError)] {
        for dropped in [false, true] {
            let brokers = Brokers::default();
            brokers.delays_commits.store(true, Ordering::SeqCst);
            brokers.refuse_commit(refused.unwrap_or(ErrorCode::None));
            let auto_commit = Some(Duration::from_secs(3600));
            let config = ConsumerConfig { auto_commit, ..ConsumerConfig::default() };
            let mut consumer = consumer_of(&brokers, config).await;
            consumer.subscribe(vec![TOPIC.to_owned()]).expect("it has a group");
            let mut consumer = assigned(consumer).await;
            consumer.seek(&at(), Offset(9));
            brokers.next_heartbeat(ErrorCode::RebalanceInProgress);
            tokio::time::sleep(Duration::from_secs(5)).await;

            let (began, timeout) = (Instant::now(), Duration::from_millis(100));
            if dropped {
                let poll = consumer.poll(Duration::from_secs(60));
                tokio::time::timeout(timeout, poll).await.expect_err("the commit has no answer");
            } else {
                let polled = consumer.poll(timeout).await.expect("a poll");
                assert!(matches!(polled, PollEvent::Nothing), "{polled:?}");
            }
            let elapsed = began.elapsed();
            assert!(elapsed < 2 * timeout, "the commit does not delay the poll: {elapsed:?}");
            assert_eq!(consumer.assignment().count(), 1, "nothing is reported yet");
            let polled = consumer.poll(Duration::from_secs(60)).await.expect("a poll");
            let PollEvent::Revoked(partitions) = polled else { panic!("{polled:?}") };
            assert_eq!(partitions, [at()]);
            assert_eq!(brokers.count(ApiKey::OffsetCommit), 1, "it is sent once");
            assert_eq!(consumer.position(&at()), Some(Offset(9)), "it is assigned until the next poll");
            consumer.commit().await.expect("committed");
            let commits = if refused.is_some() { 2 } else { 1 };
            assert_eq!(brokers.count(ApiKey::OffsetCommit), commits, "a failed commit can be repeated");
            assert!(matches!(next(&mut consumer).await, PollEvent::Assigned(_)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn assigned_partitions_are_committed_automatically() {
    let brokers = Brokers::default();
    let mut consumer = consumer_of(&brokers, ConsumerConfig::default()).await;
    consumer.assign(vec![(at(), StartAt::Committed)]).await.expect("assigned");
    consumer.seek(&at(), Offset(9));
    consumer.poll(Duration::from_secs(6)).await.expect("a poll");
    assert_eq!(*brokers.committers.lock().expect("no panic"), [(String::new(), -1)]);
    consumer.seek(&at(), Offset(10));
    consumer.close().await.expect("closed");
    assert_eq!(brokers.count(ApiKey::OffsetCommit), 2);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_with_assigned_partitions_commits_as_a_non_member() {
    let brokers = Brokers::default();
    let mut consumer = member(&brokers, impatient()).await;
    stall(&mut consumer).await;
    consumer.assign(vec![(at(), StartAt::Committed)]).await.expect("assigned");
    consumer.seek(&at(), Offset(9));
    consumer.commit().await.expect("committed");
    assert_eq!(*brokers.committers.lock().expect("no panic"), [(String::new(), -1)]);
}
