//! The state of share partitions on one broker, asked for as another broker does: it is found, changed, read,
//! kept through a restart, and deleted.

use crate::raw::Raw;
use crate::records::Topic;
use crate::running::{RunningBroker, is_coming_up};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::*;

pub(crate) const STATE_TOPIC: [(&str, &str); 3] = [
    ("share.coordinator.state.topic.num.partitions", "2"),
    ("share.coordinator.state.topic.replication.factor", "1"),
    ("share.coordinator.state.topic.min.isr", "1"),
];

fn initialize(topic: &Topic, partition: i32, state_epoch: i32) -> InitializeShareGroupStateRequest {
    use initialize_share_group_state_request::{InitializeStateData, PartitionData};
    let partitions = vec![PartitionData { partition, state_epoch, start_offset: -1 }];
    let topics = vec![InitializeStateData { topic_id: topic.id, partitions }];
    InitializeShareGroupStateRequest { group_id: "g".to_owned(), topics }
}

fn write(topic: &Topic, leader_epoch: i32, runs: &[(i64, i64)]) -> WriteShareGroupStateRequest {
    use write_share_group_state_request::{PartitionData, StateBatch, WriteStateData};
    let batch = |(first_offset, last_offset): &(i64, i64)| StateBatch {
        first_offset: *first_offset,
        last_offset: *last_offset,
        delivery_state: 2,
        delivery_count: 1,
    };
    let partition = PartitionData {
        partition: 0,
        state_epoch: 0,
        leader_epoch,
        start_offset: 10,
        delivery_complete_count: 3,
        state_batches: runs.iter().map(batch).collect(),
    };
    let topics = vec![WriteStateData { topic_id: topic.id, partitions: vec![partition] }];
    WriteShareGroupStateRequest { group_id: "g".to_owned(), topics }
}

async fn read(
    raw: &mut Raw,
    topic: &Topic,
    leader_epoch: i32,
) -> read_share_group_state_response::PartitionResult {
    use read_share_group_state_request::{PartitionData, ReadStateData};
    let topics = vec![ReadStateData {
        topic_id: topic.id,
        partitions: vec![PartitionData { partition: 0, leader_epoch }],
    }];
    let request = ReadShareGroupStateRequest { group_id: "g".to_owned(), topics };
    let mut answer = raw.ask(&request, 0).await.expect("an answer");
    answer.results.remove(0).partitions.remove(0)
}

/// Asks until the coordinator is loaded.
async fn initialized(raw: &mut Raw, topic: &Topic) {
    let answer = loaded(raw, &initialize(topic, 0, 0)).await;
    assert_eq!(answer.results[0].partitions[0].error_code, 0, "{answer:?}");
}

/// The answer when the coordinators of all partitions are loaded.
async fn loaded(
    raw: &mut Raw,
    request: &InitializeShareGroupStateRequest,
) -> InitializeShareGroupStateResponse {
    for _ in 0..1_000 {
        let answer = raw.ask(request, 0).await.expect("an answer");
        if !answer.results[0].partitions.iter().any(|partition| is_coming_up(partition.error_code)) {
            return answer;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the share coordinator does not load");
}

async fn find(raw: &mut Raw, version: i16, key: &str) -> find_coordinator_response::Coordinator {
    let coordinator_keys = vec![key.to_owned()];
    let request = FindCoordinatorRequest { key_type: 2, coordinator_keys, ..Default::default() };
    raw.ask(&request, version).await.expect("an answer").coordinators.remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_is_kept_through_a_restart_and_fences_earlier_leaders() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &STATE_TOPIC).await;
    let topic = Topic::create(&broker, "shared", 2, &[]).await;
    let mut raw = Raw::connect(&broker).await;
    let name = format!("g:{}:0", topic.id);
    assert_eq!(find(&mut raw, 6, "g").await.error_code, ErrorCode::InvalidRequest.code());
    assert_eq!(find(&mut raw, 5, &name).await.error_code, ErrorCode::InvalidRequest.code());
    let coordinator = find(&mut raw, 6, &name).await;
    assert_eq!((coordinator.error_code, coordinator.node_id), (0, broker.server().broker.node_id.0));
    let state = broker.server().broker.image();
    assert_eq!(state.topic("__share_group_state").map(|topic| topic.partitions.len()), Some(2));

    initialized(&mut raw, &topic).await;
    assert_eq!(read(&mut raw, &topic, 5).await.start_offset, -1);
    let code = async |raw: &mut Raw, request: &WriteShareGroupStateRequest| {
        raw.ask(request, 1).await.expect("an answer").results[0].partitions[0].error_code
    };
    assert_eq!(code(&mut raw, &write(&topic, 5, &[(10, 12), (20, 29)])).await, 0);
    assert_eq!(code(&mut raw, &write(&topic, 4, &[])).await, ErrorCode::FencedLeaderEpoch.code());
    broker.stop().await;

    let broker = RunningBroker::start(dir.path(), &STATE_TOPIC).await;
    let mut raw = Raw::connect(&broker).await;
    let state = loop {
        let state = read(&mut raw, &topic, 6).await;
        if state.error_code != ErrorCode::CoordinatorLoadInProgress.code() {
            break state;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!((state.error_code, state.start_offset, state.state_epoch), (0, 10, 0));
    let runs: Vec<(i64, i64)> = state.state_batches.iter().map(|b| (b.first_offset, b.last_offset)).collect();
    assert_eq!(runs, [(10, 12), (20, 29)]);
    assert_eq!(code(&mut raw, &write(&topic, 5, &[])).await, ErrorCode::FencedLeaderEpoch.code());

    broker
        .ask(&DeleteTopicsRequest {
            topics: vec![delete_topics_request::DeleteTopicState {
                name: Some("shared".to_owned()),
                ..Default::default()
            }],
            timeout_ms: 5_000,
            ..Default::default()
        })
        .await;
    let gone = read(&mut raw, &topic, 6).await;
    assert_ne!(gone.error_code, 0, "{gone:?}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_share_partition_of_a_request_has_its_own_answer() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &STATE_TOPIC).await;
    let topic = Topic::create(&broker, "shared", 2, &[]).await;
    let mut raw = Raw::connect(&broker).await;
    find(&mut raw, 6, &format!("g:{}:0", topic.id)).await;
    initialized(&mut raw, &topic).await;
    let mut request = initialize(&topic, 0, 0);
    request.topics.extend([1, 7, -1, 1].map(|partition| initialize(&topic, partition, 0).topics.remove(0)));
    let answer = loaded(&mut raw, &request).await;
    assert_eq!(answer.results.len(), 1, "one entry for the topic: {answer:?}");
    let codes: Vec<(i32, i16)> =
        answer.results[0].partitions.iter().map(|one| (one.partition, one.error_code)).collect();
    let expected = [
        (0, 0),
        (1, 0),
        (7, ErrorCode::UnknownTopicOrPartition.code()),
        (-1, ErrorCode::InvalidRequest.code()),
    ];
    assert_eq!(codes, expected);
    let empty = InitializeShareGroupStateRequest { group_id: String::new(), ..request };
    assert_eq!(raw.ask(&empty, 0).await, Some(InitializeShareGroupStateResponse::default()));
    broker.stop().await;
}
