//! A prepared batch of records: encoded, bounded, and replayed on a copy of the image before the write.
//!
//! Records are prepared first, appended second, and adopted last, so that the log contains no record that the
//! image cannot apply. Records that do not fit are refused, and so are more records than a batch may hold.
//! The copy shares all unchanged parts with the image.

use bytes::Bytes;
use thalweg_metadata::{BrokerId, Delta, Provenance, ReplayError, VersionedRecord};
use thalweg_wire::metadata::{BeginTransactionRecord, EndTransactionRecord};
use thalweg_wire::{EncodeError, ErrorCode, MetadataRecord};

use super::{ApiError, Moment, State};

/// Maximum size of a batch in bytes, for any segment size (Kafka's `MAX_BATCH_SIZE_BYTES`).
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Maximum overhead in bytes of a batch over its records, and of a record over its value.
pub(crate) const BATCH_OVERHEAD: usize = 128;
pub(crate) const RECORD_OVERHEAD: usize = 24;

/// The claim of a write on the metadata log's reserve on a full disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// The write can wait for room.
    Ordinary,
    /// The write may free room and was requested by a client. It leaves half of the reserve to urgent writes.
    Limited,
    /// The node needs the write to start or to serve, or the write frees room.
    Urgent,
}

/// The number of batches that one decision may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// One batch, for a client's request. More records are refused.
    One,
    /// Several batches in one metadata transaction (KIP-868), bounded by the size of the cluster: a leaving
    /// broker changes all of its partitions.
    Several,
}

/// Records that cannot be written. The state is unchanged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Unwritable {
    /// A record that does not fit the image or earlier records.
    #[error("record {index} of {count}, {record}, does not fit: {error}")]
    Unfit { index: usize, count: usize, record: String, error: ReplayError },
    /// A record that its version cannot encode.
    #[error("record {index} of {count}, {record}, cannot be encoded: {error}")]
    Unencodable { index: usize, count: usize, record: String, error: EncodeError },
    /// More records than a batch holds.
    #[error("{bytes} bytes of records, more than the {max} of a batch of the metadata log")]
    TooLarge { bytes: usize, max: usize },
}

impl Unwritable {
    /// True if the decision is at fault, not the request.
    pub fn is_fault(&self) -> bool {
        !matches!(self, Unwritable::TooLarge { .. })
    }
}

impl From<&Unwritable> for ApiError {
    fn from(unwritable: &Unwritable) -> ApiError {
        match unwritable {
            Unwritable::TooLarge { .. } => super::too_many_records(),
            Unwritable::Unfit { .. } | Unwritable::Unencodable { .. } => {
                let message =
                    "The controller's decision does not fit the cluster's metadata; nothing was changed.";
                ApiError::new(ErrorCode::UnknownServerError, message)
            }
        }
    }
}

/// Records that fit the state that prepared them.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Offset of the first record.
    base_offset: i64,
    records: Vec<VersionedRecord>,
    /// The encoded records, usually in one part. Each part is a batch of the log.
    parts: Vec<Vec<Bytes>>,
    /// The image after the records.
    delta: Option<Delta>,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The offset of the first record.
    pub fn base_offset(&self) -> i64 {
        self.base_offset
    }

    pub fn records(&self) -> &[VersionedRecord] {
        &self.records
    }

    /// The encoded records of each batch.
    pub fn parts(&self) -> &[Vec<Bytes>] {
        &self.parts
    }
}

impl State {
    /// Encodes records and replays them on a copy of the image. This state is unchanged.
    pub fn prepare(&self, records: Vec<VersionedRecord>, extent: Extent) -> Result<Batch, Unwritable> {
        let base_offset = self.next_offset;
        if records.is_empty() {
            return Ok(Batch { base_offset, ..Batch::default() });
        }
        let max = BATCH_BYTES_MAX.min(self.segment_bytes).saturating_sub(BATCH_OVERHEAD);
        let mut records = records;
        let mut parts = split(encode(&records)?, max)?;
        if parts.len() > 1 {
            if extent == Extent::One {
                let bytes = parts.iter().flatten().map(|value| value.len() + RECORD_OVERHEAD).sum();
                return Err(Unwritable::TooLarge { bytes, max });
            }
            if self.metadata_version().has_transactions() {
                bracket(&mut records);
                parts = split(encode(&records)?, max)?;
            }
        }
        let delta = self.replayed(&records)?;
        Ok(Batch { base_offset, records, parts, delta: Some(delta) })
    }

    /// The image with more records, as a delta. Records that begin or end a metadata transaction are skipped.
    pub(super) fn replayed(&self, records: &[VersionedRecord]) -> Result<Delta, Unwritable> {
        let mut delta = Delta::new(self.image.clone());
        for (index, VersionedRecord { record, .. }) in records.iter().enumerate() {
            if is_bracket(record) {
                continue;
            }
            delta.replay(record).map_err(|error| Unwritable::Unfit {
                index,
                count: records.len(),
                record: described(record),
                error,
            })?;
        }
        Ok(delta)
    }

    /// Adopts the image of a prepared batch that was appended in this epoch.
    pub fn adopt(&mut self, batch: Batch, epoch: i32, now: Moment) {
        let Batch { base_offset, records, delta, .. } = batch;
        let Some(mut delta) = delta else { return };
        assert_eq!(base_offset, self.next_offset, "a batch is adopted by the state that prepared it");
        for (offset, record) in (base_offset..).zip(&records) {
            self.note(&record.record, offset);
        }
        self.next_offset +=
            i64::try_from(records.len()).expect("a decision makes a bounded number of records");
        let brokers = delta.changes().brokers.clone();
        let has_new_quotas = delta.changes().quotas;
        if let Some(authorizer) = &mut self.authorizer {
            delta.image().update_authorizer(authorizer, delta.base(), &delta.changes().acls);
        }
        self.image =
            delta.apply(Provenance { offset: self.next_offset - 1, epoch, timestamp_ms: now.wall_ms });
        if has_new_quotas {
            self.mutations.set(self.image.quotas());
        }
        for id in brokers {
            match self.image.broker(id) {
                Some(broker) => self.heartbeats.register(id, broker.fenced),
                None => self.heartbeats.remove(id),
            }
        }
    }

    /// Updates the state outside the image. The image is still the one before the batch.
    fn note(&mut self, record: &MetadataRecord, offset: i64) {
        match record {
            MetadataRecord::RegisterBroker(r) => {
                let id = BrokerId(r.broker_id);
                self.registered_at.insert(id, offset);
                if self.image.broker(id).is_some_and(|b| b.epoch.0 != r.broker_epoch) {
                    // The session belongs to an earlier process.
                    self.heartbeats.remove(id);
                }
            }
            MetadataRecord::UnregisterBroker(r) => {
                self.registered_at.remove(&BrokerId(r.broker_id));
            }
            MetadataRecord::DelegationToken(r) => self.tokens.add(&r.token_id),
            MetadataRecord::RemoveDelegationToken(r) => self.tokens.remove(&r.token_id),
            _ => {}
        }
    }
}

fn is_bracket(record: &MetadataRecord) -> bool {
    matches!(
        record,
        MetadataRecord::BeginTransaction(_)
            | MetadataRecord::EndTransaction(_)
            | MetadataRecord::AbortTransaction(_)
    )
}

/// The text of a record for log lines, without credentials, tokens and settings.
fn described(record: &MetadataRecord) -> String {
    match record {
        MetadataRecord::Topic(_)
        | MetadataRecord::RemoveTopic(_)
        | MetadataRecord::Partition(_)
        | MetadataRecord::PartitionChange(_)
        | MetadataRecord::RegisterBroker(_)
        | MetadataRecord::BrokerRegistrationChange(_)
        | MetadataRecord::UnregisterBroker(_) => format!("{record:?}"),
        other => format!("of type {}", other.api_key()),
    }
}

fn encode(records: &[VersionedRecord]) -> Result<Vec<Bytes>, Unwritable> {
    let encoded = records.iter().enumerate().map(|(index, record)| {
        record.to_value().map_err(|error| Unwritable::Unencodable {
            index,
            count: records.len(),
            record: described(&record.record),
            error,
        })
    });
    encoded.collect()
}

/// Splits the values into as few batches as possible, in order.
fn split(values: Vec<Bytes>, max: usize) -> Result<Vec<Vec<Bytes>>, Unwritable> {
    let mut parts: Vec<Vec<Bytes>> = vec![Vec::new()];
    let mut filled = 0;
    for value in values {
        let bytes = value.len() + RECORD_OVERHEAD;
        if bytes > max {
            return Err(Unwritable::TooLarge { bytes, max });
        }
        if filled + bytes > max {
            parts.push(Vec::new());
            filled = 0;
        }
        filled += bytes;
        parts.last_mut().expect("there is a part").push(value);
    }
    Ok(parts)
}

/// Brackets the records as one metadata transaction.
fn bracket(records: &mut Vec<VersionedRecord>) {
    let begin = BeginTransactionRecord { name: Some("Large change".to_owned()) };
    records.insert(0, VersionedRecord::new(MetadataRecord::BeginTransaction(begin), 0));
    let end = MetadataRecord::EndTransaction(EndTransactionRecord::default());
    records.push(VersionedRecord::new(end, 0));
}
