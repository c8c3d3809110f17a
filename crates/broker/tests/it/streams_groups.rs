//! Streams groups on one broker: internal topics are created with their settings, or the answer has the
//! reason; the group continues after a restart.

use crate::records::Topic;
use crate::running::{RunningBroker, is_coming_up};
use std::path::Path;
use std::time::Duration;
use thalweg_metadata::ConfigResource;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::streams_group_heartbeat_request::{KeyValue, Subtopology, TopicInfo, Topology};
use thalweg_wire::request::*;
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(60);
pub const GROUP: &str = "words";
/// The changelog and the repartition topic of the group.
pub const INTERNAL: [&str; 2] = ["words-changelog", "words-repartition"];
/// The status of a group that lacks internal topics.
const MISSING: i8 = 3;

const SETTINGS: [(&str, &str); 3] = [
    ("group.streams.initial.rebalance.delay.ms", "0"),
    ("group.streams.assignment.interval.ms", "0"),
    ("offsets.topic.num.partitions", "1"),
];

/// A heartbeat of the only member; the changelog has these settings.
pub fn heartbeat(epoch: i32, changelog: &[(&str, &str)]) -> StreamsGroupHeartbeatRequest {
    let names = |all: &[&str]| all.iter().map(|&name| name.to_owned()).collect::<Vec<String>>();
    let config =
        |(key, value): &(&str, &str)| KeyValue { key: (*key).to_owned(), value: (*value).to_owned() };
    let topic = |name: &str, configs: &[(&str, &str)]| TopicInfo {
        name: name.to_owned(),
        topic_configs: configs.iter().map(config).collect(),
        ..Default::default()
    };
    let split = Subtopology {
        subtopology_id: "0".to_owned(),
        source_topics: names(&["topic"]),
        repartition_sink_topics: names(&[INTERNAL[1]]),
        ..Default::default()
    };
    let count = Subtopology {
        subtopology_id: "1".to_owned(),
        repartition_source_topics: vec![topic(INTERNAL[1], &[])],
        state_changelog_topics: vec![topic(INTERNAL[0], changelog)],
        ..Default::default()
    };
    StreamsGroupHeartbeatRequest {
        group_id: GROUP.to_owned(),
        member_id: "member".to_owned(),
        member_epoch: epoch,
        rebalance_timeout_ms: if epoch == 0 { 60_000 } else { -1 },
        topology: (epoch == 0).then(|| Topology { epoch: 0, subtopologies: vec![split, count] }),
        active_tasks: Some(Vec::new()),
        standby_tasks: Some(Vec::new()),
        warmup_tasks: Some(Vec::new()),
        process_id: Some("process".to_owned()),
        ..Default::default()
    }
}

/// What a member is told of missing internal topics.
pub fn missing(answer: &StreamsGroupHeartbeatResponse) -> Option<&str> {
    let status = answer.status.iter().flatten().find(|status| status.status_code == MISSING)?;
    Some(&status.status_detail)
}

/// A broker that coordinates the group, and its source topic.
async fn start(dir: &Path) -> RunningBroker {
    let broker = RunningBroker::start(dir, &SETTINGS).await;
    Topic::create(&broker, "topic", 2, &[]).await;
    broker
}

/// An answer of the coordinator, which may have to be made or loaded first.
async fn beat(
    broker: &RunningBroker,
    request: &StreamsGroupHeartbeatRequest,
) -> StreamsGroupHeartbeatResponse {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let find = FindCoordinatorRequest { coordinator_keys: vec![GROUP.to_owned()], ..Default::default() };
        broker.ask(&find).await;
        let answer = broker.ask(request).await;
        if !is_coming_up(answer.error_code) {
            assert_eq!(answer.error_code, 0, "{answer:?}");
            return answer;
        }
        assert!(Instant::now() < deadline, "no coordinator: {answer:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn internal_topics_are_created_with_their_settings_and_the_group_survives_a_restart() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path()).await;
    let compacted = [("cleanup.policy", "compact"), ("segment.bytes", "1048576")];
    let mut answer = beat(&broker, &heartbeat(0, &compacted)).await;
    assert_eq!(missing(&answer), Some("Internal topics are missing: words-changelog, words-repartition"));
    let deadline = Instant::now() + PATIENCE;
    while answer.active_tasks.as_ref().is_none_or(Vec::is_empty) {
        assert!(Instant::now() < deadline, "no tasks: {answer:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
        answer = beat(&broker, &heartbeat(answer.member_epoch, &[])).await;
    }
    let image = broker.server().broker.image();
    let config = image.config(&ConfigResource::topic(INTERNAL[0]));
    assert_eq!(config.get("cleanup.policy").map(String::as_str), Some("compact"));
    assert_eq!(config.get("segment.bytes").map(String::as_str), Some("1048576"));
    for name in INTERNAL {
        assert_eq!(image.topic(name).expect("it exists").partitions.len(), 2, "{name}");
    }
    let epoch = answer.member_epoch;
    broker.stop().await;
    let broker = RunningBroker::start(dir.path(), &SETTINGS).await;
    let unchanged = StreamsGroupHeartbeatRequest {
        active_tasks: None,
        standby_tasks: None,
        warmup_tasks: None,
        ..heartbeat(epoch, &[])
    };
    let answer = beat(&broker, &unchanged).await;
    assert_eq!((answer.member_epoch, answer.active_tasks), (epoch, None), "no rebalance");
    // A member that does not have its tasks has not seen the answer that gave them.
    let answer = beat(&broker, &heartbeat(epoch, &[])).await;
    assert_eq!(answer.active_tasks.map(|subtopologies| subtopologies.len()), Some(2));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_learn_why_an_internal_topic_is_not_created() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path()).await;
    let mut answer = beat(&broker, &heartbeat(0, &[("no.such.config", "1")])).await;
    let deadline = Instant::now() + PATIENCE;
    let reason = loop {
        match missing(&answer).and_then(|detail| detail.split_once("Creation failed: words-changelog (")) {
            Some((_, reason)) => break reason.to_owned(),
            None => assert!(Instant::now() < deadline, "no reason: {answer:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        answer = beat(&broker, &heartbeat(answer.member_epoch, &[])).await;
    };
    assert!(reason.contains("no.such.config"), "{reason}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_protocol_follows_the_level_of_its_feature() {
    use update_features_request::FeatureUpdateKey;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path()).await;
    let joined = beat(&broker, &heartbeat(0, &[])).await;
    for (level, upgrade_type, expected) in [
        (0, 2, ErrorCode::UnsupportedVersion),
        (1, 1, ErrorCode::None),
        (0, 2, ErrorCode::UnsupportedVersion),
    ] {
        let update = FeatureUpdateKey {
            feature: "streams.version".to_owned(),
            max_version_level: level,
            upgrade_type,
            ..Default::default()
        };
        let request =
            UpdateFeaturesRequest { feature_updates: vec![update], timeout_ms: 30_000, ..Default::default() };
        let answer = broker.ask(&request).await;
        assert_eq!(answer.error_code, 0, "{answer:?}");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = broker.ask(&heartbeat(joined.member_epoch, &[])).await;
            let describe =
                StreamsGroupDescribeRequest { group_ids: vec![GROUP.to_owned()], ..Default::default() };
            let described = broker.ask(&describe).await.groups.remove(0).error_code;
            if [answer.error_code, described] == [expected.code(); 2] {
                break;
            }
            assert!(Instant::now() < deadline, "level {level}: {answer:?}, described {described}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    broker.stop().await;
}
