//! Produce (key 0), versions 3 to 13.
//!
//! The request is split by partition, each part is appended under its partition's lock, inline: when this
//! function returns, the order of everything in the request is fixed. The answer is ready at once, unless acks=all
//! waits for replicas or the flush policy wants the disk first; meanwhile the connection reads on.
//!
//! One refused partition does not fail the others. acks=0 gets no answer; where a part of it fails, the connection is
//! closed, which is the only way to tell. Version 8 adds errors for single records (KIP-467), version 10 the
//! current leader (KIP-951), version 13 names topics by id (KIP-516). Versions 0 to 2 are refused (KIP-896).

use super::Call;
use crate::broker::Broker;
use crate::metrics::RequestMetrics;
use crate::net::Reply;
use crate::partition::{AppendError, Appended, Durable, Partition};
use std::sync::Arc;
use std::time::Duration;
use thalweg_wire::request::produce_request::{PartitionProduceData, TopicProduceData};
use thalweg_wire::request::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use thalweg_wire::request::{ProduceRequest, ProduceResponse};
use thalweg_wire::{DecodeError, Decoder, ErrorCode, Message, Records, Uuid};
use tokio::time::Instant;

/// Appends what the request brings, and answers when its acks say so.
pub fn handle(broker: &Arc<Broker>, call: Call, mut d: Decoder) -> Result<Reply, DecodeError> {
    let request = ProduceRequest::decode(&mut d, call.version)?;
    let acks = request.acks;
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let mut waits = Vec::new();
    let mut response = ProduceResponse::default();
    for (topic_index, topic) in request.topic_data.into_iter().enumerate() {
        let (entry, topic_waits) = append_topic(broker, &call, acks, topic);
        waits.extend(topic_waits.into_iter().map(|(index, wait)| (topic_index, index, wait)));
        response.responses.push(entry);
    }
    if acks == 0 {
        count(broker, &call, &response);
        return Ok(without_answer(&response));
    }
    if waits.is_empty() {
        count(broker, &call, &response);
        return Ok(call.reply::<ProduceRequest>(&response));
    }
    let deadline = Instant::now() + timeout;
    let broker = Arc::clone(broker);
    Ok(Reply::Ordered(Box::pin(async move {
        for (topic, partition, wait) in waits {
            if let Err(error) = wait.until(deadline).await {
                let entry = &mut response.responses[topic].partition_responses[partition];
                // The records are in the log and may yet become durable: the offset stays in the answer, as in Kafka.
                entry.error_code = error.code();
            }
        }
        count(&broker, &call, &response);
        call.reply::<ProduceRequest>(&response)
    })))
}

fn count(broker: &Broker, call: &Call, response: &ProduceResponse) {
    call.answered(broker);
    for partition in response.responses.iter().flat_map(|topic| &topic.partition_responses) {
        if partition.error_code != 0 {
            broker.requests.failed(RequestMetrics::label(call.key), partition.error_code);
        }
    }
}

/// With acks=0 nothing is answered; an error closes the connection so that the client looks for another leader.
fn without_answer(response: &ProduceResponse) -> Reply {
    let failed = response.responses.iter().flat_map(|t| &t.partition_responses).find(|p| p.error_code != 0);
    match failed {
        None => Reply::Nothing,
        Some(failed) => {
            let error = ErrorCode::from_i16(failed.error_code);
            Reply::Close(format!("a produce request with acks=0 failed: {error:?}"))
        }
    }
}

type Waits = Vec<(usize, Durable)>;

fn append_topic(
    broker: &Broker,
    call: &Call,
    acks: i16,
    topic: TopicProduceData,
) -> (TopicProduceResponse, Waits) {
    let by_id = call.version >= 13;
    let found = if by_id {
        broker.partitions.topic_by_id(topic.topic_id).ok_or(ErrorCode::UnknownTopicId)
    } else {
        broker.partitions.topic_by_name(&topic.name).ok_or(ErrorCode::UnknownTopicOrPartition)
    };
    let topic_id = if by_id { topic.topic_id } else { Uuid::ZERO };
    let mut entry = TopicProduceResponse { name: topic.name, topic_id, partition_responses: Vec::new() };
    let mut waits = Vec::new();
    for data in topic.partition_data {
        let index = data.index;
        let partition = found.as_ref().map_err(|error| *error).and_then(|t| {
            let partition = t.partition(index);
            partition.ok_or_else(|| broker.missing_partition(&t.name, index))
        });
        let result = match partition {
            Ok(partition) => append_partition(broker, call, acks, &partition, data).inspect_err(|error| {
                tracing::debug!(topic = %partition.topic, partition = index, %error, "Refused to append");
            }),
            Err(error) => Err(AppendError::from(error)),
        };
        let position = entry.partition_responses.len();
        entry.partition_responses.push(match result {
            Ok((appended, wait)) => {
                waits.extend(wait.map(|wait| (position, wait)));
                accepted(index, &appended)
            }
            Err(error) => refused(index, &error),
        });
    }
    (entry, waits)
}

fn append_partition(
    broker: &Broker,
    call: &Call,
    acks: i16,
    partition: &Arc<Partition>,
    data: PartitionProduceData,
) -> Result<(Appended, Option<Durable>), AppendError> {
    if !(-1..=1).contains(&acks) {
        return Err(ErrorCode::InvalidRequiredAcks.into());
    }
    if thalweg_metadata::topic_name::is_internal(&partition.topic)
        && call.client_id.as_deref() != Some("__admin_client")
    {
        return Err(ErrorCode::InvalidTopicException.into());
    }
    let Some(Records::Inline(records)) = data.records else { return Err(ErrorCode::InvalidRecord.into()) };
    let now_ms = broker.clock.now_ms();
    let appended = partition.append_from_client(records, acks, now_ms)?;
    let wait = Partition::durable(partition, acks, &appended);
    Ok((appended, wait))
}

fn accepted(index: i32, appended: &Appended) -> PartitionProduceResponse {
    PartitionProduceResponse {
        index,
        base_offset: appended.base_offset.0,
        log_append_time_ms: appended.log_append_time_ms,
        log_start_offset: appended.log_start_offset.0,
        ..Default::default()
    }
}

fn refused(index: i32, error: &AppendError) -> PartitionProduceResponse {
    let code = error.code();
    PartitionProduceResponse {
        index,
        error_code: code.code(),
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: -1,
        record_errors: error
            .record_errors()
            .iter()
            .map(|bad| BatchIndexAndErrorMessage {
                batch_index: bad.index,
                batch_index_error_message: Some(bad.reason.to_string()),
            })
            .collect(),
        error_message: error.message(),
        ..Default::default()
    }
}
