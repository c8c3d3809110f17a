//! A producer of numbered batches, idempotent or with transactions.

use super::books::{RECORDS, key, value};
use bytes::Bytes;
use std::fmt;
use thalweg_client::{ClientError, Cluster};
use thalweg_record::{BatchBuilder, BatchOptions, ProducerEpoch, ProducerId};
use thalweg_wire::request::ProduceRequest;
use thalweg_wire::request::produce_request::{PartitionProduceData, TopicProduceData};
use thalweg_wire::{ErrorCode, Records};

/// The newest version of Produce that identifies topics by name.
const PRODUCE_VERSION: i16 = 12;
/// Timestamp of all records; irrelevant here.
const TIMESTAMP: i64 = 1_800_000_000_000;

/// An idempotent producer of one partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Producer {
    pub(super) id: i64,
    pub(super) epoch: i16,
    pub(super) sequence: i32,
}

/// Why a batch was not acknowledged.
#[derive(Debug)]
pub(super) enum Refusal {
    NoLeader,
    Refused(ErrorCode),
    Unanswered(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoLeader => f.write_str("it has no leader"),
            Refusal::Refused(code) => write!(f, "{code}"),
            Refusal::Unanswered(why) => f.write_str(why),
        }
    }
}

/// Sends a batch to the partition's leader. Returns the offset of the batch.
pub(super) async fn produce(
    cluster: &Cluster,
    name: &str,
    number: u64,
    producer: Option<Producer>,
    transactional_id: Option<&str>,
) -> Result<i64, Refusal> {
    let unanswered = |error: ClientError| Refusal::Unanswered(error.to_string());
    let mut leader = cluster.metadata().leader(name, 0);
    if leader.is_none() {
        cluster.refresh(&[name.to_owned()], false).await.map_err(unanswered)?;
        leader = cluster.metadata().leader(name, 0);
    }
    let connection = cluster.broker(leader.ok_or(Refusal::NoLeader)?).await.map_err(unanswered)?;
    let records = Records::Inline(batch(name, number, producer, transactional_id.is_some()));
    let data = PartitionProduceData { index: 0, records: Some(records) };
    let topic =
        TopicProduceData { name: name.to_owned(), partition_data: vec![data], ..TopicProduceData::default() };
    let request = ProduceRequest {
        transactional_id: transactional_id.map(str::to_owned),
        acks: -1,
        timeout_ms: 1_000,
        topic_data: vec![topic],
    };
    let answer = connection.send_at(&request, PRODUCE_VERSION).await.map_err(unanswered)?;
    let partition = answer.responses.first().and_then(|topic| topic.partition_responses.first());
    let Some(partition) = partition else { return Err(Refusal::Unanswered("an empty answer".to_owned())) };
    if partition.error_code == 0 {
        return Ok(partition.base_offset);
    }
    let code = ErrorCode::from_i16(partition.error_code).unwrap_or(ErrorCode::UnknownServerError);
    cluster.refresh(&[name.to_owned()], false).await.map_err(unanswered)?;
    match cluster.metadata().leader(name, 0) {
        None => Err(Refusal::NoLeader),
        Some(_) => Err(Refusal::Refused(code)),
    }
}

fn batch(name: &str, number: u64, producer: Option<Producer>, transactional: bool) -> Bytes {
    let mut options = BatchOptions { transactional, ..BatchOptions::default() };
    if let Some(producer) = producer {
        options.producer_id = ProducerId(producer.id);
        options.producer_epoch = ProducerEpoch(producer.epoch);
        options.base_sequence = producer.sequence;
    }
    let mut builder = BatchBuilder::new(options);
    for record in 0..RECORDS {
        let (key, value) = (key(number, record), value(name, number, record));
        builder.append(TIMESTAMP, Some(&key), Some(&value), &[]).expect("it fits");
    }
    builder.build()
}
