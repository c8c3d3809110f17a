//! The served requests and their answers.
//!
//! The highest served versions precede topic ids, because topics are stored by name only.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use thalweg_wire::list_offsets::EARLIEST_TIMESTAMP;
use thalweg_wire::request::{
    ApiVersionsRequest, ApiVersionsResponse, CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest,
    DeleteTopicsResponse, DescribeConfigsRequest, DescribeConfigsResponse, DescribeLogDirsRequest,
    DescribeLogDirsResponse, FetchRequest, FetchResponse, FindCoordinatorRequest, FindCoordinatorResponse,
    InitProducerIdResponse, ListOffsetsRequest, ListOffsetsResponse, MetadataRequest, MetadataResponse,
    ProduceRequest, ProduceResponse, api_versions_response, create_topics_response, delete_topics_response,
    describe_configs_response, describe_log_dirs_response, fetch_response, find_coordinator_response,
    list_offsets_response, metadata_response, produce_response,
};
use thalweg_wire::{ApiKey, Decoder, ErrorCode, Records, frame};

use super::request::{Request, UnanswerableRequest};
use super::{ServerState, group};

/// The only broker.
pub(super) const NODE_ID: i32 = 1;

/// The announced APIs with their first and last version.
const SERVED: &[(ApiKey, i16, i16)] = &[
    (ApiKey::Produce, 3, 12),
    (ApiKey::Fetch, 4, 12),
    (ApiKey::ListOffsets, 1, 7),
    (ApiKey::Metadata, 0, 12),
    (ApiKey::OffsetCommit, 2, 9),
    (ApiKey::OffsetFetch, 1, 7),
    (ApiKey::FindCoordinator, 0, 4),
    (ApiKey::JoinGroup, 0, 9),
    (ApiKey::Heartbeat, 0, 4),
    (ApiKey::LeaveGroup, 0, 5),
    (ApiKey::SyncGroup, 0, 5),
    (ApiKey::ApiVersions, 0, 4),
    (ApiKey::CreateTopics, 2, 7),
    (ApiKey::DeleteTopics, 1, 5),
    (ApiKey::InitProducerId, 0, 4),
    (ApiKey::DescribeConfigs, 1, 4),
    (ApiKey::DescribeLogDirs, 1, 4),
];

/// The answer to a request (a frame without its length) and the time it is due; `None` if no answer is
/// expected.
pub(super) fn answer(
    shared: &ServerState,
    frame: Bytes,
    arrived: Instant,
) -> Result<Option<(Instant, BytesMut)>, UnanswerableRequest> {
    let prefix = frame::peek_request(&frame)?;
    let version = prefix.api_version;
    let served = SERVED.iter().find(|(key, ..)| *key as i16 == prefix.api_key);
    let not_served = UnanswerableRequest::NotServed { key: prefix.api_key, version };
    let Some(&(key, first, last)) = served else { return Err(not_served) };
    let request = Request { shared, key, version, correlation_id: prefix.correlation_id };
    if !(first..=last).contains(&version) {
        if key != ApiKey::ApiVersions {
            return Err(not_served);
        }
        // A newer client gets the supported versions in version 0 (KIP-511).
        let mut response = api_versions();
        response.error_code = ErrorCode::UnsupportedVersion.code();
        let request = Request { version: 0, ..request };
        return Ok(Some((shared.timing.other(arrived), request.encode(&response)?)));
    }
    let mut d = Decoder::new(frame);
    frame::decode_request_header(&mut d, key, version)?;
    if key == ApiKey::Produce {
        return produce(&request, &mut d, arrived);
    }
    if key == ApiKey::Fetch {
        let (at, response) = fetch(shared, request.decode(&mut d)?, arrived);
        return Ok(Some((shared.timing.other(at), request.encode(&response)?)));
    }
    let answer = other(&request, &mut d)?;
    Ok(Some((shared.timing.other(arrived), answer)))
}

/// The answer to a request other than Produce and Fetch.
fn other(request: &Request<'_>, d: &mut Decoder) -> Result<BytesMut, UnanswerableRequest> {
    match request.key {
        ApiKey::ApiVersions => {
            request.decode::<ApiVersionsRequest>(d)?;
            request.encode(&api_versions())
        }
        ApiKey::Metadata => request.encode(&metadata(request.shared, request.decode(d)?, request.version)),
        ApiKey::CreateTopics => request.encode(&create_topics(request.shared, request.decode(d)?)),
        ApiKey::DeleteTopics => request.encode(&delete_topics(request.shared, request.decode(d)?)),
        ApiKey::ListOffsets => request.encode(&list_offsets(request.shared, request.decode(d)?)),
        ApiKey::InitProducerId => request.encode(&init_producer_id()),
        ApiKey::FindCoordinator => {
            request.encode(&find_coordinator(request.shared, request.decode(d)?, request.version))
        }
        ApiKey::DescribeConfigs => request.encode(&describe_configs(request.decode(d)?)),
        ApiKey::DescribeLogDirs => request.encode(&describe_log_dirs(request.shared, request.decode(d)?)),
        _ => group::answer(request, request.key, d),
    }
}

fn api_versions() -> ApiVersionsResponse {
    let keys = SERVED.iter().map(|&(key, min_version, max_version)| api_versions_response::ApiVersion {
        api_key: key as i16,
        min_version,
        max_version,
    });
    ApiVersionsResponse { api_keys: keys.collect(), ..ApiVersionsResponse::default() }
}

fn produce(
    request: &Request<'_>,
    d: &mut Decoder,
    arrived: Instant,
) -> Result<Option<(Instant, BytesMut)>, UnanswerableRequest> {
    let topics = &request.shared.topics;
    let produced: ProduceRequest = request.decode(d)?;
    topics.count_request();
    let (mut records, mut responses) = (0, Vec::with_capacity(produced.topic_data.len()));
    let mut kept = Vec::new();
    for data in &produced.topic_data {
        let topic = topics.get(&data.name);
        let mut partition_responses = Vec::with_capacity(data.partition_data.len());
        for partition in &data.partition_data {
            let appended = match (&topic, &partition.records) {
                (None, _) => Err(ErrorCode::UnknownTopicOrPartition),
                (Some(topic), Some(Records::Inline(batches))) => {
                    topics.append(topic, partition.index, batches)
                }
                (Some(_), _) => Err(ErrorCode::InvalidRecord),
            };
            if let (Some(topic), Ok((base_offset, count))) = (&topic, appended) {
                records += count;
                kept.push((
                    Arc::clone(topic),
                    partition.index,
                    base_offset..base_offset + count.cast_signed(),
                ));
            }
            partition_responses.push(produce_response::PartitionProduceResponse {
                index: partition.index,
                error_code: appended.err().map_or(0, ErrorCode::code),
                base_offset: appended.map_or(-1, |(offset, _)| offset),
                log_append_time_ms: -1,
                log_start_offset: 0,
                ..Default::default()
            });
        }
        let name = data.name.clone();
        responses.push(produce_response::TopicProduceResponse {
            name,
            partition_responses,
            ..Default::default()
        });
    }
    let at = request.shared.timing.produce(arrived, records);
    for (topic, index, offsets) in kept {
        topic.show(index, offsets, at);
    }
    if produced.acks == 0 {
        return Ok(None);
    }
    let response = ProduceResponse { responses, ..ProduceResponse::default() };
    Ok(Some((at, request.encode(&response)?)))
}

fn metadata(shared: &ServerState, request: MetadataRequest, version: i16) -> MetadataResponse {
    // In version 0, an empty list means all topics; later, null does.
    let named = request.topics.filter(|topics| version > 0 || !topics.is_empty());
    let topics = match named {
        None => shared.topics.list().into_iter().map(|(name, count)| described(name, Ok(count))).collect(),
        Some(named) => {
            let names = named.into_iter().map(|topic| topic.name.unwrap_or_default());
            let may_create = version < 4 || request.allow_auto_topic_creation;
            let describe = |name: String| {
                let mut found = shared.topics.get(&name).ok_or(ErrorCode::UnknownTopicOrPartition);
                if found.is_err() && may_create && !name.is_empty() {
                    found = shared.topics.create(&name, -1);
                    // Another connection may have created it first.
                    found = found.or_else(|error| shared.topics.get(&name).ok_or(error));
                }
                described(name, found.map(|topic| topic.partition_count()))
            };
            names.map(describe).collect()
        }
    };
    MetadataResponse {
        brokers: vec![metadata_response::MetadataResponseBroker {
            node_id: NODE_ID,
            host: shared.address.ip().to_string(),
            port: i32::from(shared.address.port()),
            rack: None,
        }],
        cluster_id: (version >= 2).then(|| "null-server".to_owned()),
        controller_id: NODE_ID,
        topics,
        ..MetadataResponse::default()
    }
}

fn described(name: String, partitions: Result<i32, ErrorCode>) -> metadata_response::MetadataResponseTopic {
    let described = |index| metadata_response::MetadataResponsePartition {
        partition_index: index,
        leader_id: NODE_ID,
        leader_epoch: 0,
        replica_nodes: vec![NODE_ID],
        isr_nodes: vec![NODE_ID],
        ..Default::default()
    };
    metadata_response::MetadataResponseTopic {
        error_code: partitions.err().map_or(0, ErrorCode::code),
        name: Some(name),
        partitions: (0..partitions.unwrap_or(0)).map(described).collect(),
        ..Default::default()
    }
}

fn create_topics(shared: &ServerState, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let create = |topic: thalweg_wire::request::create_topics_request::CreatableTopic| {
        let made = if !matches!(topic.replication_factor, -1 | 1) {
            Err(ErrorCode::InvalidReplicationFactor)
        } else if topic.name.is_empty() {
            Err(ErrorCode::InvalidTopicException)
        } else {
            shared.topics.create(&topic.name, topic.num_partitions).map(|topic| topic.partition_count())
        };
        create_topics_response::CreatableTopicResult {
            name: topic.name,
            error_code: made.err().map_or(0, ErrorCode::code),
            num_partitions: made.unwrap_or(-1),
            replication_factor: if made.is_ok() { 1 } else { -1 },
            ..Default::default()
        }
    };
    let topics = request.topics.into_iter().map(create).collect();
    CreateTopicsResponse { topics, ..CreateTopicsResponse::default() }
}

fn delete_topics(shared: &ServerState, request: DeleteTopicsRequest) -> DeleteTopicsResponse {
    let delete = |name: String| delete_topics_response::DeletableTopicResult {
        error_code: shared.topics.delete(&name).err().map_or(0, ErrorCode::code),
        name: Some(name),
        ..Default::default()
    };
    let responses = request.topic_names.into_iter().map(delete).collect();
    DeleteTopicsResponse { responses, ..DeleteTopicsResponse::default() }
}

fn list_offsets(shared: &ServerState, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let topics = request.topics.into_iter().map(|requested| {
        let topic = shared.topics.get(&requested.name);
        let partitions = requested.partitions.iter().map(|partition| {
            let end = match &topic {
                Some(topic) => topic.end_offset(partition.partition_index),
                None => Err(ErrorCode::UnknownTopicOrPartition),
            };
            let offset = end.map(|end| if partition.timestamp == EARLIEST_TIMESTAMP { 0 } else { end });
            list_offsets_response::ListOffsetsPartitionResponse {
                partition_index: partition.partition_index,
                error_code: offset.err().map_or(0, ErrorCode::code),
                timestamp: -1,
                offset: offset.unwrap_or(-1),
                ..Default::default()
            }
        });
        list_offsets_response::ListOffsetsTopicResponse {
            name: requested.name,
            partitions: partitions.collect(),
        }
    });
    ListOffsetsResponse { topics: topics.collect(), ..ListOffsetsResponse::default() }
}

/// Answers a fetch, without sessions: every fetch lists its partitions. Records are visible from the time of
/// the answer to their producer on: if there are none yet, the answer with the next ones waits until then.
/// The server does not wait for new records; an empty answer is delayed a little, so that clients do not poll
/// without pause.
fn fetch(shared: &ServerState, request: FetchRequest, arrived: Instant) -> (Instant, FetchResponse) {
    let (found, next_at, response) = visible(shared, request.clone(), arrived);
    match next_at {
        _ if found => (arrived, response),
        Some(next_at) => (next_at, visible(shared, request, next_at).2),
        None => {
            pause();
            (arrived, response)
        }
    }
}

/// The records that are visible at `at`: whether there are any, else when the next ones become visible.
fn visible(
    shared: &ServerState,
    request: FetchRequest,
    at: Instant,
) -> (bool, Option<Instant>, FetchResponse) {
    let mut next_at: Option<Instant> = None;
    let mut left = usize::try_from(request.max_bytes).unwrap_or(0);
    let mut found = false;
    let mut responses = Vec::with_capacity(request.topics.len());
    for requested in request.topics {
        let topic = shared.topics.get(&requested.topic);
        let mut partitions = Vec::with_capacity(requested.partitions.len());
        for partition in &requested.partitions {
            let bytes_max = left.min(usize::try_from(partition.partition_max_bytes).unwrap_or(0));
            let fetched = match &topic {
                Some(topic) => topic.fetch(partition.partition, partition.fetch_offset, bytes_max, at),
                None => Err(ErrorCode::UnknownTopicOrPartition),
            };
            let mut data = fetch_response::PartitionData {
                partition_index: partition.partition,
                error_code: fetched.as_ref().err().map_or(0, |error| error.code()),
                high_watermark: -1,
                ..Default::default()
            };
            if let Ok(fetched) = fetched {
                (data.high_watermark, data.last_stable_offset) = (fetched.end_offset, fetched.end_offset);
                data.log_start_offset = 0;
                next_at = [next_at, fetched.next_at].into_iter().flatten().min();
                // Batches beyond the limit wait, except for the first of the answer (KIP-74).
                if !found || fetched.records.len() <= left {
                    found |= !fetched.records.is_empty();
                    left = left.saturating_sub(fetched.records.len());
                    data.records = Some(Records::Inline(fetched.records));
                }
            }
            found |= data.error_code != 0;
            data.records.get_or_insert_default();
            partitions.push(data);
        }
        responses.push(fetch_response::FetchableTopicResponse {
            topic: requested.topic,
            partitions,
            ..Default::default()
        });
    }
    (found, next_at, FetchResponse { responses, ..FetchResponse::default() })
}

#[expect(clippy::disallowed_methods, reason = "a connection has its own threads, which may wait")]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(5));
}

fn init_producer_id() -> InitProducerIdResponse {
    // The transaction log is ignored: every request gets a new producer.
    static NEXT: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(1000);
    let producer_id = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    InitProducerIdResponse { producer_id, producer_epoch: 0, ..InitProducerIdResponse::default() }
}

fn find_coordinator(
    shared: &ServerState,
    request: FindCoordinatorRequest,
    version: i16,
) -> FindCoordinatorResponse {
    let (host, port) = (shared.address.ip().to_string(), i32::from(shared.address.port()));
    if version < 4 {
        return FindCoordinatorResponse {
            node_id: NODE_ID,
            host,
            port,
            ..FindCoordinatorResponse::default()
        };
    }
    let keys = request.coordinator_keys.into_iter();
    let coordinators = keys.map(|key| find_coordinator_response::Coordinator {
        key,
        node_id: NODE_ID,
        host: host.clone(),
        port,
        ..Default::default()
    });
    FindCoordinatorResponse { coordinators: coordinators.collect(), ..FindCoordinatorResponse::default() }
}

/// No property is set, because no stored state depends on one.
fn describe_configs(request: DescribeConfigsRequest) -> DescribeConfigsResponse {
    let results =
        request.resources.into_iter().map(|resource| describe_configs_response::DescribeConfigsResult {
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            ..Default::default()
        });
    DescribeConfigsResponse { results: results.collect(), ..DescribeConfigsResponse::default() }
}

/// A single directory, in memory.
fn describe_log_dirs(shared: &ServerState, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse {
    let requested: Vec<(String, Vec<i32>)> = match request.topics {
        Some(topics) => topics.into_iter().map(|topic| (topic.topic, topic.partitions)).collect(),
        None => shared.topics.list().into_iter().map(|(name, count)| (name, (0..count).collect())).collect(),
    };
    let topics = requested.into_iter().filter_map(|(name, partitions)| {
        let topic = shared.topics.get(&name)?;
        let known = partitions.into_iter().filter(|&index| topic.end_offset(index).is_ok());
        let partitions = known.map(|partition_index| describe_log_dirs_response::DescribeLogDirsPartition {
            partition_index,
            partition_size: i64::try_from(topic.kept_bytes(partition_index)).unwrap_or(i64::MAX),
            ..Default::default()
        });
        Some(describe_log_dirs_response::DescribeLogDirsTopic { name, partitions: partitions.collect() })
    });
    let dir = describe_log_dirs_response::DescribeLogDirsResult {
        log_dir: "memory".to_owned(),
        topics: topics.collect(),
        ..Default::default()
    };
    DescribeLogDirsResponse { results: vec![dir], ..DescribeLogDirsResponse::default() }
}
