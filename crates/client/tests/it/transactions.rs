//! The transactional producer against a coordinator with faults, by both protocols.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_client::{
    CommittedOffset, GroupMetadata, Producer, ProducerConfig, ProducerRecord, SendError, TopicPartition,
    TopicRef, TransactionError,
};
use thalweg_record::Offset;
use thalweg_wire::{ApiKey, ErrorCode};
use tokio::time::Instant;

use crate::coordinator::Trouble;
use crate::fake::{Act, Fake, TOPIC};

fn config() -> ProducerConfig {
    ProducerConfig { transactional_id: Some("t".to_owned()), ..ProducerConfig::default() }
}

async fn producer(fake: &Fake) -> (Producer, TopicRef) {
    let mut producer = Producer::new(fake.cluster().await, config(), |_| {});
    let topic = producer.topic(TOPIC).await.expect("the topic is there");
    (producer, topic)
}

async fn send(producer: &mut Producer, topic: TopicRef, partition: i32) -> Result<(), SendError> {
    let record = ProducerRecord {
        topic,
        partition: Some(partition),
        timestamp: 5,
        key: None,
        value: Some(b"value"),
        headers: &[],
        sent_at: Instant::now(),
        number: 0,
    };
    producer.send(&record).await.map(drop)
}

fn offsets() -> BTreeMap<TopicPartition, CommittedOffset> {
    BTreeMap::from([(TopicPartition::new(TOPIC, 1), CommittedOffset::new(Offset(9)))])
}

fn group() -> GroupMetadata {
    let (group, member_id) = ("g".to_owned(), "m".to_owned());
    GroupMetadata { group, generation: 3, member_id, group_instance_id: None }
}

async fn a_transaction(producer: &mut Producer, topic: TopicRef) -> Result<(), TransactionError> {
    producer.begin_transaction()?;
    for partition in [0, 1, 0] {
        send(producer, topic, partition).await.expect("taken");
    }
    producer.send_offsets_to_transaction(&offsets(), &group()).await?;
    producer.commit_transaction().await
}

#[tokio::test(start_paused = true)]
async fn records_and_offsets_are_committed_by_both_protocols() {
    for implicit in [false, true] {
        let fake = Fake::new(2, |_| Act::Store);
        fake.state().coordinator.implicit = implicit;
        let (mut producer, topic) = producer(&fake).await;
        assert!(send(&mut producer, topic, 0).await.is_err(), "no transaction is open");
        producer.init_transactions().await.expect("the coordinator is there");
        for _ in 0..3 {
            a_transaction(&mut producer, topic).await.expect("committed");
        }
        producer.begin_transaction().expect("the last one has ended");
        send(&mut producer, topic, 1).await.expect("taken");
        producer.flush().await;
        producer.abort_transaction().await.expect("aborted");
        let state = fake.state();
        assert_eq!(state.coordinator.ended, [true, true, true, false]);
        assert_eq!(state.coordinator.offsets, [(1, 9); 3]);
        let records: Vec<usize> = state.logs.iter().map(|log| log.transactional).collect();
        assert_eq!(records, [6, 4]);
        let registered = state.coordinator.requests.contains(&ApiKey::AddPartitionsToTxn);
        assert_eq!(registered, !implicit);
        let epochs: Vec<i16> = state.logs[1].epochs.clone();
        assert_eq!(
            epochs,
            if implicit { [1, 2, 3, 4] } else { [1; 4] },
            "with the newer one each has its epoch"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_moves_loads_or_is_busy_gets_the_request_again() {
    let busy = [
        ErrorCode::NotCoordinator,
        ErrorCode::CoordinatorLoadInProgress,
        ErrorCode::ConcurrentTransactions,
        ErrorCode::CoordinatorNotAvailable,
    ];
    for implicit in [false, true] {
        let fake = Fake::new(2, |_| Act::Store);
        {
            let coordinator = &mut fake.state().coordinator;
            coordinator.implicit = implicit;
            let asked = [
                ApiKey::InitProducerId,
                ApiKey::AddPartitionsToTxn,
                ApiKey::AddOffsetsToTxn,
                ApiKey::TxnOffsetCommit,
                ApiKey::EndTxn,
            ];
            for (key, error) in asked.into_iter().flat_map(|key| busy.map(|error| (key, error))) {
                coordinator.troubles.push_back((key, Trouble::Refuse(error)));
            }
        }
        let (mut producer, topic) = producer(&fake).await;
        producer.init_transactions().await.expect("it is there in the end");
        a_transaction(&mut producer, topic).await.expect("committed");
        assert_eq!(fake.state().coordinator.ended, [true]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_answer_is_lost_is_repeated() {
    for implicit in [false, true] {
        let fake = Fake::new(2, |_| Act::Store);
        {
            let coordinator = &mut fake.state().coordinator;
            coordinator.implicit = implicit;
            for key in
                [ApiKey::AddPartitionsToTxn, ApiKey::AddOffsetsToTxn, ApiKey::TxnOffsetCommit, ApiKey::EndTxn]
            {
                coordinator.troubles.push_back((key, Trouble::CloseAfter));
            }
        }
        let (mut producer, topic) = producer(&fake).await;
        producer.init_transactions().await.expect("the coordinator is there");
        for _ in 0..2 {
            a_transaction(&mut producer, topic).await.expect("committed");
        }
        assert_eq!(fake.state().coordinator.ended, [true, true]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_record_leaves_the_abort_and_the_next_transaction_goes_on() {
    for implicit in [false, true] {
        let mut refusals = 1;
        let fake = Fake::new(2, move |_| {
            refusals -= 1;
            if refusals == 0 { Act::Refuse(ErrorCode::InvalidRecord) } else { Act::Store }
        });
        fake.state().coordinator.implicit = implicit;
        let (mut producer, topic) = producer(&fake).await;
        producer.init_transactions().await.expect("the coordinator is there");
        let error = a_transaction(&mut producer, topic).await.expect_err("a record is missing");
        assert!(error.is_abortable(), "{error}");
        assert_eq!(error.error_code(), Some(ErrorCode::InvalidRecord));
        let sent = send(&mut producer, topic, 0).await;
        assert!(matches!(sent, Err(SendError::Transaction(error)) if error.is_abortable()));
        producer.abort_transaction().await.expect("aborted");
        a_transaction(&mut producer, topic).await.expect("committed");
        let state = fake.state();
        assert_eq!(state.coordinator.ended, [false, true]);
        assert_eq!(state.logs[0].epochs.last(), Some(&2), "the gap is closed by another epoch");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_too_large_is_split_within_its_transaction() {
    for implicit in [false, true] {
        let fake = Fake::new(2, |_| Act::Store);
        fake.state().coordinator.implicit = implicit;
        fake.state().message_bytes_max = 200;
        let (mut producer, topic) = producer(&fake).await;
        producer.init_transactions().await.expect("the coordinator is there");
        for _ in 0..2 {
            producer.begin_transaction().expect("none is open");
            for _ in 0..40 {
                send(&mut producer, topic, 0).await.expect("taken");
            }
            producer.commit_transaction().await.expect("committed");
        }
        let state = fake.state();
        assert!(state.too_large > 0, "a batch was too large");
        assert_eq!((state.logs[0].records.len(), state.logs[0].transactional), (80, 80));
        assert_eq!(state.coordinator.ended, [true, true]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fenced_producer_stays_fenced() {
    for (key, implicit) in
        [(ApiKey::AddPartitionsToTxn, false), (ApiKey::TxnOffsetCommit, true), (ApiKey::EndTxn, true)]
    {
        let fake = Fake::new(2, |_| Act::Store);
        fake.state().coordinator.implicit = implicit;
        let (mut producer, topic) = producer(&fake).await;
        producer.init_transactions().await.expect("the coordinator is there");
        let fenced = Trouble::Refuse(ErrorCode::ProducerFenced);
        fake.state().coordinator.troubles.push_back((key, fenced));
        let error = a_transaction(&mut producer, topic).await.expect_err("another has the id");
        assert!(error.is_fenced() && error.is_fatal(), "{error}");
        assert!(producer.abort_transaction().await.expect_err("it is over").is_fenced());
        assert!(producer.begin_transaction().expect_err("it is over").is_fenced());
        let sent = send(&mut producer, topic, 0).await;
        assert!(matches!(sent, Err(SendError::Transaction(error)) if error.is_fenced()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_without_an_answer_is_repeated_until_it_is_decided() {
    let fake = Fake::new(2, |_| Act::Store);
    fake.state().coordinator.implicit = true;
    let (mut producer, topic) = producer(&fake).await;
    producer.init_transactions().await.expect("the coordinator is there");
    let loading = (ApiKey::EndTxn, Trouble::Refuse(ErrorCode::CoordinatorLoadInProgress));
    // More often than `max.block.ms` lets it be asked.
    fake.state().coordinator.troubles.extend([loading; 80]);
    let started = Instant::now();
    let error = a_transaction(&mut producer, topic).await.expect_err("no answer");
    assert!(error.is_retriable(), "{error}");
    assert!(started.elapsed() <= Duration::from_secs(61));
    assert!(producer.abort_transaction().await.is_err(), "the commit may have been made");
    producer.commit_transaction().await.expect("the same call decides it");
    assert_eq!(fake.state().coordinator.ended, [true]);
    a_transaction(&mut producer, topic).await.expect("committed");
}

#[tokio::test(start_paused = true)]
async fn a_member_that_lost_its_partitions_cannot_commit_offsets() {
    let fake = Fake::new(2, |_| Act::Store);
    fake.state().coordinator.implicit = true;
    let (mut producer, topic) = producer(&fake).await;
    producer.init_transactions().await.expect("the coordinator is there");
    let stale = Trouble::Refuse(ErrorCode::IllegalGeneration);
    fake.state().coordinator.troubles.push_back((ApiKey::TxnOffsetCommit, stale));
    let error = a_transaction(&mut producer, topic).await.expect_err("the generation is over");
    assert!(error.is_abortable(), "{error}");
    producer.abort_transaction().await.expect("aborted");
    a_transaction(&mut producer, topic).await.expect("committed");
    assert_eq!(fake.state().coordinator.ended, [false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_future_is_dropped_goes_on_with_the_next_call() {
    let fake = Fake::new(2, |_| Act::Delay(Duration::from_secs(5)));
    let (mut producer, topic) = producer(&fake).await;
    producer.init_transactions().await.expect("the coordinator is there");
    producer.begin_transaction().expect("it is ready");
    send(&mut producer, topic, 0).await.expect("taken");
    let commit = tokio::time::timeout(Duration::from_secs(1), producer.commit_transaction()).await;
    assert!(commit.is_err(), "the record is under way");
    assert!(send(&mut producer, topic, 0).await.is_err(), "the transaction takes no more");
    producer.commit_transaction().await.expect("committed");
    assert_eq!(fake.state().coordinator.ended, [true]);
}
