//! Offsets of transactions that the log of the groups refuses for their producer's or coordinator's epoch:
//! clients and other coordinators get Kafka's codes, which tell them to give up.

use crate::records::Topic;
use crate::running::RunningBroker;
use crate::transactions::{ONE_SEGMENT, Protocol, Transactional, committed_offset, patiently, start};
use thalweg_metadata::topic_name::OFFSETS;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use thalweg_wire::request::*;

/// Partitions are not verified: the log alone refuses.
const PROPERTIES: [(&str, &str); 2] =
    [("transaction.partition.verification.enable", "false"), ("offsets.topic.num.partitions", "1")];

/// A broker that coordinates group `g`, and a topic for its offsets.
async fn started(dir: &tempfile::TempDir) -> RunningBroker {
    let broker = start(dir, &PROPERTIES).await;
    Topic::create(&broker, "topic", 1, &[ONE_SEGMENT]).await;
    let find = FindCoordinatorRequest { coordinator_keys: vec!["g".to_owned()], ..Default::default() };
    let found = async || broker.ask(&find).await.coordinators.remove(0).error_code;
    patiently(async || (ErrorCode::from_i16(found().await).expect("a code of Kafka's"), ())).await;
    broker
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_of_a_replaced_producer_are_refused_for_its_epoch() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = started(&dir).await;
    let old = Transactional::begin(&broker, "app", Protocol::Older).await;
    assert_eq!(old.add_group(&broker, "g").await, ErrorCode::None);
    assert_eq!(old.commit_offset(broker.connection(), "g", 5).await, ErrorCode::None);
    let mut new = Transactional::begin(&broker, "app", Protocol::Older).await;
    assert!(new.epoch > old.epoch);
    let refused = old.commit_offset(broker.connection(), "g", 6).await;
    assert_eq!(refused, ErrorCode::InvalidProducerEpoch);
    assert_eq!(new.add_group(&broker, "g").await, ErrorCode::None);
    assert_eq!(new.commit_offset(broker.connection(), "g", 7).await, ErrorCode::None);
    assert_eq!(new.end(&broker, true).await, ErrorCode::None);
    assert_eq!(committed_offset(broker.connection(), "g").await, Ok(7));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_markers_for_offsets_are_refused_for_good() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = started(&dir).await;
    let mut one = Transactional::begin(&broker, "app", Protocol::Older).await;
    assert_eq!(one.add_group(&broker, "g").await, ErrorCode::None);
    assert_eq!(one.commit_offset(broker.connection(), "g", 5).await, ErrorCode::None);
    assert_eq!(one.end(&broker, true).await, ErrorCode::None);
    let marker = |producer_epoch, coordinator_epoch| WritableTxnMarker {
        producer_id: one.producer_id,
        producer_epoch,
        transaction_result: false,
        topics: vec![WritableTxnMarkerTopic { name: OFFSETS.to_owned(), partition_indexes: vec![0] }],
        coordinator_epoch,
        transaction_version: 0,
    };
    let refusals = [
        (marker(one.epoch, -1), ErrorCode::TransactionCoordinatorFenced),
        (marker(one.epoch - 1, 100), ErrorCode::InvalidProducerEpoch),
    ];
    for (marker, expected) in refusals {
        let mut answer = broker.ask(&WriteTxnMarkersRequest { markers: vec![marker] }).await;
        let code = answer.markers.remove(0).topics.remove(0).partitions.remove(0).error_code;
        assert_eq!(ErrorCode::from_i16(code), Some(expected));
    }
    assert_eq!(committed_offset(broker.connection(), "g").await, Ok(5));
    broker.stop().await;
}
