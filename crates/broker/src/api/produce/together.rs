//! Several Produce requests of one connection that arrived together, for the same partition: appended in one
//! write.
//!
//! A producer that does not batch has up to five requests in flight. Each would cost a write, the partition's
//! lock and a wake-up of waiting readers. Here these costs are paid once for all, and each request gets the
//! answer that it would get alone.
//!
//! Requests may share a write if they are small, uncompressed, without a transaction, and identical except
//! for their records. Other requests are appended one by one.

use super::{
    AnswerPosition, Call, PendingAppend, TopicRef, accepted, acknowledge, begin, denied_topics, is_closed,
};
use crate::broker::Broker;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use thalweg_metadata::PartitionIndex;
use thalweg_net::{FramesBehind, Reply};
use thalweg_record::{BatchHeader, Compression};
use thalweg_replica::partition::{AppendOutcome, Partition};
use thalweg_wire::frame::{decode_request_header, peek_request};
use thalweg_wire::request::produce_response::TopicProduceResponse;
use thalweg_wire::request::{ProduceRequest, ProduceResponse};
use thalweg_wire::{ApiKey, DecodeError, Decoder, Message, Records, Uuid};
use tokio::time::Instant;

/// Maximum size of a request that shares a write, in bytes. Appending a larger request costs more than
/// sharing saves.
const FRAME_MAX: usize = 16 * 1024;
/// Maximum size of one shared write, in bytes.
const TOGETHER_MAX: usize = 256 * 1024;
/// Position of the correlation id in a request, the only difference before the records.
const CORRELATION_ID: Range<usize> = 4..8;
/// The bytes after the records in a flexible version: no tagged fields of partition, topic and request.
const NO_TAGS: &[u8] = &[0; 3];

/// The requests behind `frame` that may share its write; usually none.
pub fn take_alike(frame: &Bytes, behind: &mut FramesBehind<'_>) -> Vec<Bytes> {
    let begins_alike = |next: &[u8]| next.get(..CORRELATION_ID.start) == frame.get(..CORRELATION_ID.start);
    if frame.len() > FRAME_MAX || !behind.peek().is_some_and(begins_alike) {
        return Vec::new();
    }
    let Some(shape) = Shape::of(frame) else { return Vec::new() };
    let (mut taken, mut bytes) = (Vec::new(), frame.len());
    while let Some(next) = behind.peek()
        && bytes + next.len() <= TOGETHER_MAX
        && shape.fits(next)
        && let Some(next) = behind.take()
    {
        bytes += next.len();
        taken.push(next);
    }
    taken
}

/// The common part of requests that share a write.
struct Shape<'a> {
    /// The first request up to the length of its records.
    before_records: &'a [u8],
    is_flexible: bool,
}

impl Shape<'_> {
    /// The shape of a request with one batch that may share a write.
    fn of(frame: &Bytes) -> Option<Shape<'_>> {
        let prefix = peek_request(frame).ok().filter(|prefix| prefix.api_key == ApiKey::Produce as i16)?;
        let version = prefix.api_version;
        let is_flexible = ProduceRequest::is_flexible(version);
        let mut d = Decoder::new(frame.clone()).with_elements_max(2);
        decode_request_header(&mut d, ApiKey::Produce, version).ok()?;
        let request = ProduceRequest::decode(&mut d, version).ok()?;
        let records = only_records(&request).filter(|records| is_plain(records))?;
        if request.transactional_id.is_some() || request.acks == 0 {
            return None;
        }
        let behind = if is_flexible { NO_TAGS } else { &[] };
        let whole = frame.strip_suffix(behind)?.strip_suffix(&records[..])?;
        let length_bytes = if is_flexible { compact_length_bytes(records.len()) } else { size_of::<i32>() };
        let before_records = whole.get(..whole.len().checked_sub(length_bytes)?)?;
        Some(Shape { before_records, is_flexible })
    }

    /// True if the next request differs only in correlation id and batch. This check selects requests that
    /// share a write; each request is still decoded when it is served.
    fn fits(&self, next: &[u8]) -> bool {
        let at = self.before_records.len();
        let is_alike = |range: Range<usize>| next.get(range.clone()) == self.before_records.get(range);
        if next.len() > FRAME_MAX || !is_alike(0..CORRELATION_ID.start) || !is_alike(CORRELATION_ID.end..at) {
            return false;
        }
        let Some(rest) = next.get(at..) else { return false };
        let length_bytes = match self.is_flexible {
            true => rest.iter().take_while(|byte| **byte & 0x80 != 0).count() + 1,
            false => size_of::<i32>(),
        };
        rest.get(length_bytes..).is_some_and(is_plain)
    }
}

/// Number of bytes of a compact length: a varint of `length` + 1, seven bits per byte.
fn compact_length_bytes(length: usize) -> usize {
    let bits = usize::BITS - (length + 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// The records of a request with one partition.
fn only_records(request: &ProduceRequest) -> Option<&Bytes> {
    let [topic] = &request.topic_data[..] else { return None };
    let [partition] = &topic.partition_data[..] else { return None };
    match &partition.records {
        Some(Records::Inline(records)) => Some(records),
        _ => None,
    }
}

/// True if a batch has no compression, whose cost would be unknown, and no transaction.
fn is_plain(records: &[u8]) -> bool {
    BatchHeader::parse(records).is_ok_and(|header| {
        let attributes = header.attributes;
        attributes.compression() == Ok(Compression::None)
            && !attributes.is_transactional()
            && !attributes.is_control()
    })
}

/// Serves requests that share a write. Returns an answer for each, in order.
pub fn handle(broker: &Arc<Broker>, calls: Vec<(Call, Decoder)>) -> Vec<Result<Reply, DecodeError>> {
    let requests = calls.into_iter().map(|(mut call, mut d)| {
        let request = ProduceRequest::decode(&mut d, call.version)?;
        call.frame = Bytes::new();
        Ok((call, request))
    });
    let requests: Vec<Result<(Call, ProduceRequest), DecodeError>> = requests.collect();
    let began = Instant::now();
    let Some((partition, appended)) = append(broker, &requests) else {
        // Small plain requests wait only for replicas, so the order of the calls is the order of the appends.
        let one_by_one =
            requests.into_iter().map(|each| each.map(|(call, request)| begin(broker, call, request)));
        return one_by_one.collect();
    };
    let local = began.elapsed() / u32::try_from(requests.len()).unwrap_or(u32::MAX);
    let answers = requests.into_iter().zip(&appended).map(|(each, appended)| {
        each.map(|(call, request)| answer(broker, call, request, &partition, appended, local))
    });
    answers.collect()
}

/// Appends the batches of all requests, or none.
fn append(
    broker: &Broker,
    requests: &[Result<(Call, ProduceRequest), DecodeError>],
) -> Option<(Arc<Partition>, Vec<AppendOutcome>)> {
    let (call, request) = requests.first()?.as_ref().ok()?;
    let [topic] = &request.topic_data[..] else { return None };
    if denied_topics(broker, call, request).contains(0) {
        return None;
    }
    let named = TopicRef::of(call.version >= super::TOPIC_IDS_FROM, &topic.name, topic.topic_id);
    let partition =
        named.here(&broker.partitions)?.partition(PartitionIndex(topic.partition_data.first()?.index))?;
    if is_closed(call, &partition.topic) || !matches!(request.acks, 1 | -1) {
        return None;
    }
    let records = requests.iter().map(|each| only_records(&each.as_ref().ok()?.1).cloned());
    let records: Vec<Bytes> = records.collect::<Option<_>>()?;
    let appended = partition.append_together_from_client(&records, request.acks, broker.clock.now_ms())?;
    Some((partition, appended))
}

fn answer(
    broker: &Arc<Broker>,
    call: Call,
    request: ProduceRequest,
    partition: &Arc<Partition>,
    appended: &AppendOutcome,
    local: Duration,
) -> Reply {
    let mut waits: Vec<(AnswerPosition, PendingAppend)> = Vec::new();
    let entry = accepted(partition, request.acks, (0, 0), appended, &mut waits);
    let names = request.topic_data.into_iter().next().map(|topic| (topic.name, topic.topic_id));
    let (name, id) = names.unwrap_or_default();
    let topic_id = if call.version >= super::TOPIC_IDS_FROM { id } else { Uuid::ZERO };
    let topic = TopicProduceResponse { name, topic_id, partition_responses: vec![entry] };
    let throttle_time_ms = broker.quotas.charge_produce(&call.caller(), request.acks, || local);
    let response = ProduceResponse { responses: vec![topic], throttle_time_ms, ..Default::default() };
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    acknowledge(broker, call, local, request.acks, timeout, response, waits)
}
