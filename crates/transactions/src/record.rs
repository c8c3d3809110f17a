//! The records of `__transaction_state`, as Kafka writes them (`TransactionLog`).
//!
//! ```text
//! key    type i16 = 0 | TransactionLogKey version 0
//! value  version i16  | TransactionLogValue        a tombstone has none
//! ```
//! Values have version 0 while transaction.version is 0, and version 1 from then on.

use super::metadata::{
    FLEXIBLE_RECORDS, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TransactionMetadata, TransactionPartitions,
};
use super::state::TransactionState;
use bytes::Bytes;
use std::sync::Arc;
use thalweg_metadata::PartitionIndex;
use thalweg_shard::{RecordDecodeError, prefixed};
use thalweg_wire::transaction::transaction_log_value::PartitionsSchema;
use thalweg_wire::transaction::{TransactionLogKey, TransactionLogValue};
use thalweg_wire::{Decoder, EncodeError, Message};

const TRANSACTION_LOG: i16 = 0;

/// A record of the log. A record without metadata is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionRecord {
    /// The transactional id.
    pub id: String,
    /// The id's new state; `None` for a tombstone.
    pub metadata: Option<TransactionMetadata>,
}

/// The key of a transactional id.
pub fn encode_key(id: &str) -> Result<Bytes, EncodeError> {
    prefixed(TRANSACTION_LOG, &TransactionLogKey { transactional_id: id.to_owned() }, 0)
}

/// The value, encoded by the cluster's level of transaction.version.
pub fn encode_value(metadata: &TransactionMetadata, transaction_version: i16) -> Result<Bytes, EncodeError> {
    let version = i16::from(transaction_version >= FLEXIBLE_RECORDS);
    let has_transaction = metadata.state != TransactionState::Empty;
    let mut value = TransactionLogValue {
        producer_id: metadata.producer_id,
        producer_epoch: metadata.producer_epoch,
        transaction_timeout_ms: metadata.timeout_ms,
        transaction_status: metadata.state.id(),
        transaction_partitions: has_transaction.then(|| by_topic(&metadata.partitions)),
        transaction_last_update_timestamp_ms: metadata.last_update_ms,
        transaction_start_timestamp_ms: metadata.start_ms,
        ..TransactionLogValue::default()
    };
    if version >= 1 {
        value.previous_producer_id = metadata.previous_producer_id;
        value.next_producer_id = metadata.next_producer_id;
        value.client_transaction_version = metadata.client_version;
    }
    prefixed(version, &value, version)
}

/// Decodes a record; `None` for an unknown type of key or value, which Kafka skips too.
pub fn decode(
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Result<Option<TransactionRecord>, RecordDecodeError> {
    let mut key = Decoder::new(Bytes::copy_from_slice(key.ok_or(RecordDecodeError::NoKey)?));
    if key.i16()? != TRANSACTION_LOG {
        return Ok(None);
    }
    let id = TransactionLogKey::decode(&mut key, 0)?.transactional_id;
    let Some(value) = value else { return Ok(Some(TransactionRecord { id, metadata: None })) };
    let mut value = Decoder::new(Bytes::copy_from_slice(value));
    let version = value.i16()?;
    if !(TransactionLogValue::MIN_VERSION..=TransactionLogValue::MAX_VERSION).contains(&version) {
        return Ok(None);
    }
    let value = TransactionLogValue::decode(&mut value, version)?;
    let status = value.transaction_status;
    let state = TransactionState::from_id(status).ok_or(RecordDecodeError::TransactionStatus { status })?;
    let mut partitions = TransactionPartitions::new();
    for topic in value.transaction_partitions.unwrap_or_default() {
        let name: Arc<str> = topic.topic.into();
        partitions.extend(
            topic.partition_ids.into_iter().map(|partition| (name.clone(), PartitionIndex(partition))),
        );
    }
    let metadata = TransactionMetadata {
        producer_id: value.producer_id,
        previous_producer_id: value.previous_producer_id,
        next_producer_id: value.next_producer_id,
        producer_epoch: value.producer_epoch,
        last_producer_epoch: NO_PRODUCER_EPOCH,
        timeout_ms: value.transaction_timeout_ms,
        state,
        partitions,
        start_ms: value.transaction_start_timestamp_ms,
        last_update_ms: value.transaction_last_update_timestamp_ms,
        client_version: value.client_transaction_version,
    };
    debug_assert!(metadata.producer_id != NO_PRODUCER_ID || state == TransactionState::Empty);
    Ok(Some(TransactionRecord { id, metadata: Some(metadata) }))
}

fn by_topic(partitions: &TransactionPartitions) -> Vec<PartitionsSchema> {
    let mut topics: Vec<PartitionsSchema> = Vec::new();
    for (topic, partition) in partitions {
        match topics.last_mut().filter(|last| *last.topic == **topic) {
            Some(last) => last.partition_ids.push(partition.0),
            None => {
                topics.push(PartitionsSchema { topic: topic.to_string(), partition_ids: vec![partition.0] })
            }
        }
    }
    topics
}
