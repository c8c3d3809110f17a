//! Metrics as an operator reads them: where the time of requests goes, connections, coordinators, limits.

use crate::records::{Topic, batch, batch_at, fetch, fetch_partition, produce, put};
use crate::running::RunningBroker;
use std::collections::BTreeMap;
use std::time::Duration;
use thalweg_broker::metrics::Exposition;
use thalweg_record::BatchOptions;
use thalweg_wire::request::*;

const COMBINED: [(&str, &str); 3] = [
    ("process.roles", "broker,controller"),
    ("node.id", "1"),
    ("listeners", "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"),
];

/// Every sample by name and labels.
pub fn samples(broker: &RunningBroker) -> BTreeMap<String, f64> {
    let mut page = Exposition::default();
    broker.server().metrics.expose(&mut page);
    let text = page.into_text();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let split = lines.map(|line| line.rsplit_once(' ').expect("a name and a value"));
    split.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_of_requests_is_shown_by_stage() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker =
        RunningBroker::start(dir.path(), &[("flush.messages", "1"), ("log.flush.interval.messages", "1")])
            .await;
    let topic = Topic::create(&broker, "t", 1, &[("flush.messages", "1")]).await;
    for _ in 0..3 {
        assert_eq!(put(&broker, &topic, 1, batch(&[b"a"])).await.error_code, 0);
    }
    // It waits for records that do not come.
    let mut waits = fetch(12, &topic, vec![fetch_partition(0, 3)]);
    (waits.min_bytes, waits.max_wait_ms) = (1, 300);
    broker.ask_at(&waits, 12).await;

    let metrics = samples(&broker);
    let of = |name: &str| metrics.get(name).copied().unwrap_or_else(|| panic!("{name} is missing"));
    let stage = |request: &str, stage: &str, what: &str| {
        of(&format!("thalweg_request_time_seconds_{what}{{request=\"{request}\",stage=\"{stage}\"}}"))
    };
    for name in ["queue", "local", "remote", "total"] {
        assert_eq!(stage("Produce", name, "count") as u64, 3, "{name}: it waits for the disk");
    }
    assert!(stage("Produce", "send", "count") >= 3.0);
    assert!(stage("FetchConsumer", "remote", "sum") > 0.25, "it has waited");
    assert!(stage("FetchConsumer", "local", "sum") < 0.1, "and has not worked");
    let below = "thalweg_request_time_seconds_bucket{request=\"FetchConsumer\",stage=\"total\",le=\"0.1\"}";
    assert_eq!(of(below) as u64, 0);
    assert!(of("thalweg_log_flush_seconds_count") >= 3.0);
    assert_eq!(of("thalweg_request_size_bytes_count{request=\"Produce\"}") as u64, 3);
    assert!(of("thalweg_response_size_bytes_sum{request=\"Fetch\"}") > 20.0);
    assert_eq!(
        of("kafka_server_delayedoperationpurgatory_numdelayedoperations{delayedOperation=\"Fetch\"}") as u64,
        0
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_fetches_and_connections_are_counted_while_they_last() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker =
        RunningBroker::start(dir.path(), &[&COMBINED[..], &[("connections.max.idle.ms", "400")]].concat())
            .await;
    let topic = Topic::create(&broker, "t", 1, &[]).await;
    let waiting = "kafka_server_delayedoperationpurgatory_numdelayedoperations{delayedOperation=\"Fetch\"}";
    let mut waits = fetch(12, &topic, vec![fetch_partition(0, 0)]);
    (waits.min_bytes, waits.max_wait_ms) = (1, 5000);
    let mut other = crate::raw::Raw::connect(&broker).await;
    let asked = other.send(&waits, 12).await;
    let seen = async {
        while samples(&broker)[waiting] < 1.0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(4), seen).await.expect("a fetch waits");
    let mut produce = produce(9, &topic, 0, 1, batch(&[b"a"]));
    produce.timeout_ms = 1000;
    broker.ask_at(&produce, 9).await;
    other.answer::<FetchRequest>(asked, 12).await.expect("an answer");
    assert_eq!(samples(&broker)[waiting] as u64, 0);

    let metrics = samples(&broker);
    assert!(metrics["thalweg_listener_connections{listener=\"PLAINTEXT\"}"] >= 2.0);
    assert!(
        metrics.contains_key("thalweg_listener_connections{listener=\"CONTROLLER\"}"),
        "the controller's, too"
    );
    assert!(other.is_closed_within(Duration::from_secs(5)).await, "it is idle");
    let closed = async {
        while samples(&broker)["thalweg_connections_closed_total{reason=\"idle\"}"] < 1.0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(4), closed).await.expect("it is counted");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_of_partitions_stay_within_their_limit_and_can_be_left_out() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &[("thalweg.metrics.series.max", "30")]).await;
    Topic::create(&broker, "small", 1, &[]).await;
    Topic::create(&broker, "large", 40, &[]).await;
    let metrics = samples(&broker);
    assert!(metrics.contains_key("kafka_server_brokertopicmetrics_bytesin_total{topic=\"large\"}"));
    assert_eq!(metrics["thalweg_metrics_dropped_series{family=\"kafka_log_log_size\"}"] as u64, 41);
    assert!(
        !metrics.keys().any(|name| name.starts_with("kafka_log_log_size")),
        "not even of the small topic"
    );
    assert_eq!(metrics["kafka_server_replicamanager_leadercount"] as u64, 41, "totals are always there");

    let change = |name: &str, value: &str| {
        use incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
        let config =
            AlterableConfig { name: name.to_owned(), value: Some(value.to_owned()), ..Default::default() };
        let resource = AlterConfigsResource { resource_type: 4, configs: vec![config], ..Default::default() };
        IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() }
    };
    let answer = broker.ask(&change("thalweg.metrics.series.max", "1000")).await;
    assert_eq!(answer.responses[0].error_code, 0, "{:?}", answer.responses[0].error_message);
    let changed = async {
        while !samples(&broker).contains_key("kafka_log_log_size{topic=\"small\",partition=\"0\"}") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), changed)
        .await
        .expect("the limit changes without a restart");
    broker.ask(&change("thalweg.metrics.partitions", "false")).await;
    let changed = async {
        while samples(&broker).keys().any(|name| name.contains("partition=\"")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), changed).await.expect("they are left out");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lag_of_a_group_is_shown_in_records_and_in_seconds() {
    use offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &[]).await;
    let topic = Topic::create(&broker, "t", 1, &[]).await;
    let now_ms = thalweg_log::Clock::system().now_ms();
    for age_s in [300, 200, 100] {
        let batch = batch_at(now_ms - age_s * 1000, &[b"a", b"b"], BatchOptions::default());
        assert_eq!(put(&broker, &topic, 1, batch).await.error_code, 0);
    }
    let commit = |offset| OffsetCommitRequest {
        group_id: "g".to_owned(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: "t".to_owned(),
            partitions: vec![OffsetCommitRequestPartition {
                committed_offset: offset,
                committed_leader_epoch: -1,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let coordinator_keys = vec!["g".to_owned()];
    broker.ask(&FindCoordinatorRequest { coordinator_keys, ..Default::default() }).await;
    // The last offset is beyond the end.
    for (offset, age_s) in [(0, 300.0), (1, 300.0), (2, 200.0), (4, 100.0), (6, 0.0), (46, 0.0)] {
        // The coordinator loads its partition after the first request.
        let committed = async {
            while broker.ask_at(&commit(offset), 9).await.topics[0].partitions[0].error_code != 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), committed).await.expect("the group has a coordinator");
        let metrics = samples(&broker);
        let lag = metrics["kafka_consumergroup_lag{consumergroup=\"g\",topic=\"t\",partition=\"0\"}"];
        assert_eq!(lag, (6 - offset) as f64);
        let unread = lag.max(0.0);
        assert_eq!(metrics["thalweg_group_lag{consumergroup=\"g\"}"], unread);
        assert_eq!(metrics["kafka_consumergroup_lag_sum{consumergroup=\"g\",topic=\"t\"}"], unread);
        for name in [
            "thalweg_group_lag_seconds{consumergroup=\"g\"}",
            "thalweg_group_partition_lag_seconds{consumergroup=\"g\",topic=\"t\",partition=\"0\"}",
        ] {
            let found = metrics[name];
            assert!((age_s..age_s + 30.0).contains(&found), "{name} at {offset}: {found}");
        }
    }
    broker.stop().await;
}
