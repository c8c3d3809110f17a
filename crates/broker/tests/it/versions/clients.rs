//! What producers and consumers ask: Produce, Fetch, ListOffsets, Metadata, OffsetForLeaderEpoch,
//! InitProducerId, ApiVersions, SASL.

use super::Trial;
use crate::records::{Topic, batch, fetch, fetch_partition, produce, values};
use thalweg_wire::request::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use thalweg_wire::request::metadata_request::MetadataRequestTopic;
use thalweg_wire::request::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Uuid};

pub async fn ask(trial: &mut Trial) {
    produce_at_every_version(trial).await;
    fetch_at_every_version(trial).await;
    list_offsets(trial).await;
    metadata(trial).await;
    leader_epochs(trial).await;
    telemetry(trial).await;
    let name = |version| if version >= 3 { "thalweg-test".to_owned() } else { String::new() };
    let make = |version| ApiVersionsRequest {
        client_software_name: name(version),
        client_software_version: name(version),
    };
    let good = |version, answer: &ApiVersionsResponse| {
        let finalized = answer.finalized_features.iter().map(|f| (f.name.as_str(), f.max_version_level));
        // The quorum is formatted with its voters recorded, as by `kafka-storage format --standalone`.
        let expected = [
            ("metadata.version", 30),
            ("eligible.leader.replicas.version", 1),
            ("group.version", 1),
            ("share.version", 1),
            ("streams.version", 1),
            ("transaction.version", 2),
            ("kraft.version", 1),
        ];
        let features = finalized.eq(expected.into_iter().filter(|_| version >= 3));
        answer.error_code == 0 && answer.api_keys.len() > 30 && features
    };
    trial.each("as clients do", make, good).await;
    let none = |version| ApiVersionsRequest {
        client_software_name: if version >= 3 { "-".to_owned() } else { String::new() },
        ..Default::default()
    };
    let refused = |version, answer: &ApiVersionsResponse| (version < 3) == (answer.error_code == 0);
    trial.each("with a bad name", none, refused).await;
    let make = |_| InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: 1000,
        ..Default::default()
    };
    trial.each("an id", make, |_, answer| answer.error_code == 0 && answer.producer_id >= 0).await;
    let make = |version| InitProducerIdRequest {
        transactional_id: None,
        producer_id: if version >= 3 { 5 } else { -1 },
        producer_epoch: if version >= 3 { 2 } else { -1 },
        ..Default::default()
    };
    trial.each("an epoch that is raised", make, |_, answer| answer.error_code == 0).await;
    // The listener asks nobody for a name.
    let state = ErrorCode::IllegalSaslState.code();
    let make = |_| SaslHandshakeRequest { mechanism: "PLAIN".to_owned() };
    trial.each("without need", make, |_, answer| answer.error_code == state).await;
    let make = |_| SaslAuthenticateRequest { auth_bytes: "\0u\0p".into() };
    trial.each("without need", make, |_, answer| answer.error_code == state).await;
}

/// The error for an unknown topic, if ids identify topics after a version.
fn unknown(last_by_name: i16, version: i16) -> i16 {
    let by_name = version <= last_by_name;
    if by_name { ErrorCode::UnknownTopicOrPartition.code() } else { ErrorCode::UnknownTopicId.code() }
}

async fn produce_at_every_version(trial: &mut Trial) {
    let (known, nowhere) = (trial.known.clone(), trial.unknown.clone());
    for acks in [1, -1] {
        let make = |version| produce(version, &known, 1, acks, batch(&[b"x"]));
        let good = |version, answer: &ProduceResponse| {
            let topic = &answer.responses[0];
            let named =
                topic.name == known.name_until(12, version) && topic.topic_id == known.id_after(12, version);
            named
                && topic.partition_responses[0].error_code == 0
                && topic.partition_responses[0].base_offset >= 0
        };
        trial.each("a batch", make, good).await;
        let code = |answer: &ProduceResponse| answer.responses[0].partition_responses[0].error_code;
        let make = |version| produce(version, &nowhere, 0, acks, batch(&[b"x"]));
        trial.each("to no topic", make, |version, answer| code(answer) == unknown(12, version)).await;
        let make = |version| produce(version, &known, 7, acks, batch(&[b"x"]));
        trial
            .each("to no partition", make, |_, answer| {
                code(answer) == ErrorCode::UnknownTopicOrPartition.code()
            })
            .await;
        let make = |version| produce(version, &known, 0, acks, bytes::Bytes::from_static(&[7; 100]));
        let told = |version, answer: &ProduceResponse| {
            code(answer) != 0
                && (version < 8 || answer.responses[0].partition_responses[0].error_message.is_some())
        };
        trial.each("no batch", make, told).await;
    }
    for version in Trial::versions::<ProduceRequest>() {
        trial.raw.send(&produce(version, &known, 1, 0, batch(&[b"x"])), version).await;
        let after = trial.ask("behind acks=0", 0, &ApiVersionsRequest::default()).await;
        assert!(after.is_some(), "Produce version {version} with acks=0 has no answer");
    }
}

async fn fetch_at_every_version(trial: &mut Trial) {
    let (known, nowhere) = (trial.known.clone(), trial.unknown.clone());
    for session_epoch in [-1, 0] {
        let ask = |version: i16, topic: &Topic, partition, offset| {
            let request = fetch(version, topic, vec![fetch_partition(partition, offset)]);
            FetchRequest { session_epoch, isolation_level: 1, ..request }
        };
        let good = |version, answer: &FetchResponse| {
            let topic = &answer.responses[0];
            let named =
                topic.topic == known.name_until(12, version) && topic.topic_id == known.id_after(12, version);
            let in_session = version >= 7 && session_epoch == 0;
            named && values(&topic.partitions[0]).len() == 3 && in_session == (answer.session_id != 0)
        };
        trial.each("records", |version| ask(version, &known, 0, 0), good).await;
        let code = |answer: &FetchResponse| answer.responses[0].partitions[0].error_code;
        trial.each("no topic", |v| ask(v, &nowhere, 0, 0), |v, answer| code(answer) == unknown(12, v)).await;
        let beyond = ErrorCode::OffsetOutOfRange.code();
        trial.each("no offset", |v| ask(v, &known, 0, 77), |_, answer| code(answer) == beyond).await;
        let missing = ErrorCode::UnknownTopicOrPartition.code();
        trial.each("no partition", |v| ask(v, &known, 7, 0), |_, answer| code(answer) == missing).await;
    }
    fetch_with_epochs(trial, &known).await;
    let make = |version| FetchRequest {
        session_id: if version >= 7 { 12_345 } else { 0 },
        session_epoch: if version >= 7 { 3 } else { -1 },
        ..fetch(version, &known, vec![fetch_partition(0, 0)])
    };
    let lost = ErrorCode::FetchSessionIdNotFound.code();
    trial.each("a lost session", make, |version, answer| version < 7 || answer.error_code == lost).await;
}

async fn fetch_with_epochs(trial: &mut Trial, known: &Topic) {
    let with = |version: i16, current: i32, last: i32, offset: i64| {
        let mut partition = fetch_partition(0, offset);
        partition.current_leader_epoch = if version >= 9 { current } else { -1 };
        partition.last_fetched_epoch = if version >= 12 { last } else { -1 };
        fetch(version, known, vec![partition])
    };
    let newer = |version, answer: &FetchResponse| {
        let code = answer.responses[0].partitions[0].error_code;
        code == if version >= 9 { ErrorCode::UnknownLeaderEpoch.code() } else { 0 }
    };
    trial.each("an epoch to come", |version| with(version, 9, -1, 1), newer).await;
    let out_of_range = ErrorCode::OffsetOutOfRange.code();
    let unknown = |version, answer: &FetchResponse| {
        let code = answer.responses[0].partitions[0].error_code;
        code == if version >= 12 { out_of_range } else { 0 }
    };
    trial.each("records of an epoch to come", |version| with(version, -1, 5, 1), unknown).await;
    let diverges = |version, answer: &FetchResponse| {
        let partition = &answer.responses[0].partitions[0];
        match version {
            0..12 => partition.error_code == out_of_range,
            _ => partition.error_code == 0 && partition.diverging_epoch.end_offset == 3,
        }
    };
    trial.each("more than the epoch has", |version| with(version, -1, 0, 4), diverges).await;
    let make = |version: i16| {
        let mut request = with(version, -1, -1, 1);
        if version >= 15 {
            request.replica_state.replica_id = 9;
        } else {
            request.replica_id = 9;
        }
        request
    };
    trial.each("a replica that there is not", make, |_, answer| answer.responses.len() <= 1).await;
}

async fn list_offsets(trial: &mut Trial) {
    let (known, nowhere) = (trial.known.clone(), trial.unknown.clone());
    for (timestamp, since, offset) in [
        (-1, 0, 3),
        (-2, 0, 0),
        (-3, 7, 0),
        (-4, 8, 0),
        (-5, 9, -1),
        (-6, 11, -1),
        (0, 0, 0),
        (i64::MAX, 0, -1),
    ] {
        let ask = |version: i16, topic: &Topic| {
            let partition = ListOffsetsPartition { partition_index: 0, timestamp, ..Default::default() };
            let topic = ListOffsetsTopic { name: topic.name.clone(), partitions: vec![partition] };
            ListOffsetsRequest {
                isolation_level: i8::from(version >= 2),
                topics: vec![topic],
                ..Default::default()
            }
        };
        let good = |version, answer: &ListOffsetsResponse| {
            let partition = &answer.topics[0].partitions[0];
            let served = partition.error_code == 0 && partition.offset == offset;
            let refused = partition.error_code == ErrorCode::UnsupportedVersion.code();
            if version < since { refused } else { served }
        };
        trial.each(&format!("time {timestamp}"), |version| ask(version, &known), good).await;
        let missing = |version, answer: &ListOffsetsResponse| {
            version < since || answer.topics[0].partitions[0].error_code == unknown(i16::MAX, version)
        };
        trial.each("of no topic", |version| ask(version, &nowhere), missing).await;
    }
}

async fn metadata(trial: &mut Trial) {
    let (known, nowhere) = (trial.known.clone(), trial.unknown.clone());
    let ask = |version: i16, topics: Option<Vec<MetadataRequestTopic>>| MetadataRequest {
        topics: if version == 0 { Some(topics.unwrap_or_default()) } else { topics },
        allow_auto_topic_creation: version < 4,
        include_cluster_authorized_operations: (8..=10).contains(&version),
        include_topic_authorized_operations: version >= 8,
    };
    let named =
        |topic: &Topic| vec![MetadataRequestTopic { name: Some(topic.name.clone()), ..Default::default() }];
    let good = |version, answer: &MetadataResponse| {
        let found = answer.topics.iter().find(|topic| topic.name.as_deref() == Some("known"));
        answer.brokers.len() == 1
            && found.is_some_and(|topic| {
                let operations = (version >= 8) == (topic.topic_authorized_operations != i32::MIN);
                let id = topic.topic_id == known.id_after(9, version);
                topic.error_code == 0 && topic.partitions.len() == 2 && operations && id
            })
    };
    trial.each("one topic", |version| ask(version, Some(named(&known))), good).await;
    trial.each("all topics", |version| ask(version, None), good).await;
    let make = |version| ask(version, if version == 0 { Some(named(&known)) } else { Some(Vec::new()) });
    trial.each("no topics", make, |version, answer| version == 0 || answer.topics.is_empty()).await;
    let missing = |version, answer: &MetadataResponse| {
        let topic = &answer.topics[0];
        let operations = if version >= 8 { 3576 } else { i32::MIN };
        topic.error_code == unknown(i16::MAX, version) && topic.topic_authorized_operations == operations
    };
    trial.each("an unknown topic", |version| ask(version, Some(named(&nowhere))), missing).await;
    for topic in [&known, &nowhere] {
        let by_id = |version| {
            if version < 10 {
                return ask(version, Some(named(topic)));
            }
            ask(version, Some(vec![MetadataRequestTopic { topic_id: topic.id, name: None }]))
        };
        let asked_id = topic.id;
        let code = if topic.id == known.id { 0 } else { ErrorCode::UnknownTopicId.code() };
        let judge = |version, answer: &MetadataResponse| {
            let topic = &answer.topics[0];
            let operations = if code == 0 { 3576 } else { i32::MIN };
            // The field for the id is older than the right to ask by it.
            if (10..12).contains(&version) {
                let refused = topic.error_code == ErrorCode::InvalidRequest.code();
                return refused && topic.name.as_deref() == Some("") && topic.topic_id == asked_id;
            }
            version < 12 || (topic.error_code == code && topic.topic_authorized_operations == operations)
        };
        trial.each("by id", by_id, judge).await;
    }
}

async fn telemetry(trial: &mut Trial) {
    let make = |_| GetTelemetrySubscriptionsRequest::default();
    let good = |_, answer: &GetTelemetrySubscriptionsResponse| {
        answer.error_code == 0
            && answer.client_instance_id != Uuid::ZERO
            && answer.requested_metrics.is_empty()
    };
    trial.each("a new client", make, good).await;
    let refused = ErrorCode::InvalidRequest.code();
    let make = |_| PushTelemetryRequest::default();
    let good = |_, answer: &PushTelemetryResponse| answer.error_code == refused;
    trial.each("without an id", make, good).await;
}

async fn leader_epochs(trial: &mut Trial) {
    let (known, nowhere) = (trial.known.clone(), trial.unknown.clone());
    let ask = |version: i16, topic: &Topic, current: i32| {
        let partition =
            OffsetForLeaderPartition { partition: 0, current_leader_epoch: current, leader_epoch: 0 };
        let topic = OffsetForLeaderTopic { topic: topic.name.clone(), partitions: vec![partition] };
        OffsetForLeaderEpochRequest { replica_id: if version >= 3 { -1 } else { -2 }, topics: vec![topic] }
    };
    let of = |answer: &OffsetForLeaderEpochResponse| {
        let partition = &answer.topics[0].partitions[0];
        (partition.error_code, partition.end_offset)
    };
    trial.each("known", |version| ask(version, &known, -1), |_, answer| of(answer) == (0, 3)).await;
    let newer = (ErrorCode::UnknownLeaderEpoch.code(), -1);
    trial.each("an epoch to come", |version| ask(version, &known, 9), |_, answer| of(answer) == newer).await;
    let missing = (ErrorCode::UnknownTopicOrPartition.code(), -1);
    trial.each("unknown", |version| ask(version, &nowhere, -1), |_, answer| of(answer) == missing).await;
}
