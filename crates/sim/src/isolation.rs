//! READ_COMMITTED on a replica, for reads of every length: a model of Kafka's consumer applied to the
//! product's answers, compared with all batches of the log. Invariant: a consumer never sees a record of an
//! aborted transaction, and sees all other records.

use std::collections::{BTreeMap, BTreeSet};
use thalweg_log::AbortedTransaction;
use thalweg_record::{Batch, ControlRecordType, DecompressBuffer, Offset, ProducerId, batches};
use thalweg_replica::partition::{FetchParameters, Isolation, Partition, Reader};

/// Number of batches between the starts of reads. From each start, one read ends after each later batch.
const STEP: usize = 32;

/// Base offsets of data batches.
type Batches = BTreeSet<i64>;

/// True if a batch is an abort marker.
fn aborts(batch: &Batch<'_>) -> bool {
    let mut buffer = DecompressBuffer::default();
    let Ok(mut records) = batch.records(&mut buffer) else { return false };
    let key = records.next().and_then(Result::ok).and_then(|record| record.key);
    key.and_then(|key| ControlRecordType::parse_key(key).ok()) == Some(Some(ControlRecordType::Abort))
}

/// The data batches that were not aborted.
fn committed(log: &[Batch<'_>]) -> Batches {
    let mut open: BTreeMap<ProducerId, Vec<i64>> = BTreeMap::new();
    let mut shown = Batches::new();
    for batch in log {
        let header = &batch.header;
        if header.attributes.is_control() {
            let ended = open.remove(&header.producer_id).unwrap_or_default();
            if !aborts(batch) {
                shown.extend(ended);
            }
        } else if header.attributes.is_transactional() {
            open.entry(header.producer_id).or_default().push(header.base_offset.0);
        } else {
            shown.insert(header.base_offset.0);
        }
    }
    shown
}

/// The data batches of an answer that a consumer returns: a producer counts as aborted from the first offset
/// of its aborted transaction to its next abort marker.
fn shown(answer: &[Batch<'_>], mut aborted: Vec<AbortedTransaction>) -> Batches {
    aborted.sort_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
    let mut hidden = BTreeSet::new();
    let mut shown = Batches::new();
    for batch in answer {
        let header = &batch.header;
        while aborted.last().is_some_and(|transaction| transaction.first_offset <= header.last_offset()) {
            hidden.extend(aborted.pop().map(|transaction| transaction.producer_id));
        }
        if header.attributes.is_control() {
            if aborts(batch) {
                hidden.remove(&header.producer_id);
            }
        } else if !header.attributes.is_transactional() || !hidden.contains(&header.producer_id) {
            shown.insert(header.base_offset.0);
        }
    }
    shown
}

/// Reads committed records of a replica with the given log. Returns the first violation.
pub fn check(replica: &Partition, log: &[u8]) -> Option<String> {
    let log: Vec<_> = batches(log).map_while(Result::ok).collect();
    let committed = committed(&log);
    for from in (0..log.len()).step_by(STEP) {
        let mut bytes = 0;
        for last in from..log.len() {
            bytes += log[last].bytes.len();
            let offset = log[from].header.base_offset;
            let (end, found) = match read(replica, offset, bytes) {
                Ok(Some(read)) => read,
                Ok(None) => return Some(format!("nothing is read from {offset} with {bytes} bytes")),
                Err(error) => return Some(format!("reading from {offset} failed: {error}")),
            };
            if end < log[last].header.next_offset() {
                // A read ends with its segment.
                break;
            }
            let expected: Batches = committed.range(offset.0..end.0).copied().collect();
            if found != expected {
                let wrong: Vec<_> = found.symmetric_difference(&expected).collect();
                return Some(format!(
                    "read_committed from {offset} to {end} shows or hides the batches at {wrong:?} wrongly"
                ));
            }
        }
    }
    None
}

/// The visible batches of one read of at most `max_bytes`, and the end of the read.
fn read(replica: &Partition, offset: Offset, max_bytes: usize) -> Result<Option<(Offset, Batches)>, String> {
    let from = FetchParameters {
        offset,
        max_bytes,
        at_least_one: true,
        current_leader_epoch: None,
        last_fetched_epoch: None,
        reader: Reader::Client,
        isolation: Isolation::ReadCommitted,
        from_any_replica: true,
        reader_start: Offset::NONE,
        first_pass: false,
    };
    let read = replica.fetch(&from).map_err(|error| format!("{error:?}"))?;
    let Some(slice) = read.slice else { return Ok(None) };
    let mut bytes = vec![0; slice.len];
    slice.file.read_at(&mut bytes, slice.position).map_err(|error| error.to_string())?;
    let answer: Vec<_> = batches(&bytes).map_while(Result::ok).collect();
    Ok(Some((slice.end_offset, shown(&answer, read.aborted))))
}
