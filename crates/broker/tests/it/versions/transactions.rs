//! What transactional producers, brokers and administrators ask of transactions.

use super::Trial;
use crate::transactions::patiently;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use thalweg_wire::request::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use thalweg_wire::request::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use thalweg_wire::request::*;

/// Producers that begin at the newest version: each with its own id.
async fn begin(trial: &mut Trial, id: &str) -> (i64, i16) {
    let request = InitProducerIdRequest {
        transactional_id: Some(id.to_owned()),
        transaction_timeout_ms: 60_000,
        ..Default::default()
    };
    let broker = &trial.broker;
    let (error, answer) = patiently(async || {
        let answer = broker.ask(&request).await;
        (ErrorCode::from_i16(answer.error_code).expect("a code of Kafka's"), answer)
    })
    .await;
    assert_eq!(error, ErrorCode::None);
    (answer.producer_id, answer.producer_epoch)
}

pub async fn ask(trial: &mut Trial) {
    let make = |version| InitProducerIdRequest {
        transactional_id: Some(format!("id-{version}")),
        transaction_timeout_ms: 60_000,
        ..Default::default()
    };
    begin(trial, "first").await;
    trial.each("under an id", make, |_, answer| answer.error_code == 0 && answer.producer_epoch == 0).await;
    let make = |version| InitProducerIdRequest {
        transactional_id: Some("first".to_owned()),
        transaction_timeout_ms: 60_000,
        producer_id: if version >= 3 { 77_777 } else { -1 },
        producer_epoch: if version >= 3 { 2 } else { -1 },
        ..Default::default()
    };
    let fenced = |version, answer: &InitProducerIdResponse| {
        let expected = match version {
            0..3 => ErrorCode::None,
            3 => ErrorCode::InvalidProducerEpoch,
            _ => ErrorCode::ProducerFenced,
        };
        answer.error_code == expected.code()
    };
    trial.each("of another producer", make, fenced).await;
    partitions(trial).await;
    offsets(trial).await;
    ends(trial).await;
    markers(trial).await;
    looks(trial).await;
}

fn adding(
    version: i16,
    id: &str,
    (producer_id, producer_epoch): (i64, i16),
    topic: &str,
) -> AddPartitionsToTxnRequest {
    let topics = vec![AddPartitionsToTxnTopic { name: topic.to_owned(), partitions: vec![0, 1] }];
    if version >= 4 {
        let transaction = AddPartitionsToTxnTransaction {
            transactional_id: id.to_owned(),
            producer_id,
            producer_epoch,
            verify_only: false,
            topics,
        };
        return AddPartitionsToTxnRequest { transactions: vec![transaction], ..Default::default() };
    }
    AddPartitionsToTxnRequest {
        v3_and_below_transactional_id: id.to_owned(),
        v3_and_below_producer_id: producer_id,
        v3_and_below_producer_epoch: producer_epoch,
        v3_and_below_topics: topics,
        ..Default::default()
    }
}

fn codes(version: i16, answer: &AddPartitionsToTxnResponse) -> Vec<i16> {
    let topics = match version {
        0..4 => &answer.results_by_topic_v3_and_below,
        _ => &answer.results_by_transaction[0].topic_results,
    };
    topics.iter().flat_map(|topic| &topic.results_by_partition).map(|p| p.partition_error_code).collect()
}

async fn partitions(trial: &mut Trial) {
    let producer = begin(trial, "partitions").await;
    let make = |version| adding(version, "partitions", producer, "known");
    trial.each("partitions", make, |version, answer| codes(version, answer) == [0, 0]).await;
    let make = |version| adding(version, "partitions", producer, "unknown");
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    trial.each("of no topic", make, |version, answer| codes(version, answer) == [unknown; 2]).await;
    let of_the_past = (producer.0, producer.1 - 1);
    let make = |version| adding(version, "partitions", of_the_past, "known");
    let fenced = |version, answer: &AddPartitionsToTxnResponse| {
        let expected = if version < 2 { ErrorCode::InvalidProducerEpoch } else { ErrorCode::ProducerFenced };
        codes(version, answer) == [expected.code(); 2]
    };
    trial.each("of an epoch of the past", make, fenced).await;
}

async fn offsets(trial: &mut Trial) {
    let (producer_id, producer_epoch) = begin(trial, "offsets").await;
    let make = |_| AddOffsetsToTxnRequest {
        transactional_id: "offsets".to_owned(),
        producer_id,
        producer_epoch,
        group_id: "group-of-a-transaction".to_owned(),
    };
    trial.each("offsets", make, |_, answer| answer.error_code == 0).await;
    let make = |_| TxnOffsetCommitRequest {
        transactional_id: "offsets".to_owned(),
        group_id: "group-of-a-transaction".to_owned(),
        producer_id,
        producer_epoch,
        topics: vec![TxnOffsetCommitRequestTopic {
            name: "known".to_owned(),
            partitions: vec![TxnOffsetCommitRequestPartition { committed_offset: 1, ..Default::default() }],
        }],
        ..Default::default()
    };
    let good = |_, answer: &TxnOffsetCommitResponse| answer.topics[0].partitions[0].error_code == 0;
    trial.each("offsets", make, good).await;
}

async fn ends(trial: &mut Trial) {
    for version in Trial::versions::<EndTxnRequest>() {
        let id = format!("end-{version}");
        let (producer_id, producer_epoch) = begin(trial, &id).await;
        let add = adding(3, &id, (producer_id, producer_epoch), "known");
        trial.ask("partitions", 3, &add).await;
        let request =
            EndTxnRequest { transactional_id: id, producer_id, producer_epoch, committed: version % 2 == 0 };
        if let Some(answer) = trial.ask("an end", version, &request).await {
            let told = if version >= 5 { (producer_id, producer_epoch + 1) } else { (-1, -1) };
            let good = answer.error_code == 0 && (answer.producer_id, answer.producer_epoch) == told;
            trial.judge::<EndTxnRequest>("an end", version, good, &answer);
        }
    }
}

async fn markers(trial: &mut Trial) {
    let make = |version| WriteTxnMarkersRequest {
        markers: vec![WritableTxnMarker {
            producer_id: 900_000,
            producer_epoch: version,
            transaction_result: true,
            topics: vec![WritableTxnMarkerTopic { name: "known".to_owned(), partition_indexes: vec![0] }],
            coordinator_epoch: 0,
            transaction_version: if version >= 2 { 2 } else { 0 },
        }],
    };
    let good = |_, answer: &WriteTxnMarkersResponse| {
        answer.markers[0].producer_id == 900_000 && answer.markers[0].topics[0].partitions[0].error_code == 0
    };
    trial.each("a marker", make, good).await;
}

async fn looks(trial: &mut Trial) {
    let make = |_| DescribeTransactionsRequest {
        transactional_ids: vec!["partitions".to_owned(), "nobody".to_owned(), "nobody".to_owned()],
    };
    let good = |_, answer: &DescribeTransactionsResponse| {
        let [nobody, known] = &answer.transaction_states[..] else { return false };
        nobody.error_code == ErrorCode::TransactionalIdNotFound.code()
            && known.error_code == 0
            && known.transaction_state == "Ongoing"
            && known.topics[0].partitions == [0, 1]
    };
    trial.each("two ids", make, good).await;
    let make = |version| ListTransactionsRequest {
        state_filters: vec!["Ongoing".to_owned(), "Asleep".to_owned()],
        transactional_id_pattern: (version >= 2).then(|| "part.*".to_owned()),
        ..Default::default()
    };
    let good = |version, answer: &ListTransactionsResponse| {
        let ids: Vec<_> = answer.transaction_states.iter().map(|s| s.transactional_id.as_str()).collect();
        let expected = if version >= 2 { vec!["partitions"] } else { vec!["offsets", "partitions"] };
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        answer.error_code == 0 && answer.unknown_state_filters == ["Asleep"] && sorted == expected
    };
    trial.each("those that go on", make, good).await;
}
