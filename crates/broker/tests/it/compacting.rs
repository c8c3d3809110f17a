//! Compaction in a whole broker: how fast it may go, and that this can be changed.

use crate::records::{Topic, put};
use crate::running::RunningBroker;
use std::time::Duration;
use thalweg_metadata::PartitionIndex;
use thalweg_record::{BatchBuilder, BatchOptions};
use thalweg_replica::partition::Partition;
use thalweg_wire::request::IncrementalAlterConfigsRequest;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use tokio::time::{Instant, sleep};

const RATE: &str = "log.cleaner.io.max.bytes.per.second";

async fn set(broker: &RunningBroker, name: &str, value: &str) {
    let config =
        AlterableConfig { name: name.to_owned(), config_operation: 0, value: Some(value.to_owned()) };
    let resource =
        AlterConfigsResource { resource_type: 4, resource_name: String::new(), configs: vec![config] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    assert_eq!(broker.ask(&request).await.responses[0].error_code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_keeps_to_its_rate_which_can_change() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &[(RATE, "1"), ("log.cleaner.backoff.ms", "50")]).await;
    let configs = [("cleanup.policy", "compact"), ("segment.bytes", "1048576")];
    let topic = Topic::create(&broker, "topic", 1, &configs).await;
    for _ in 0..6 {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        let now_ms = broker.server().broker.clock.now_ms();
        builder.append(now_ms, Some(b"key"), Some(&vec![b'v'; 700_000]), &[]).expect("it fits");
        assert_eq!(put(&broker, &topic, -1, builder.build()).await.error_code, 0);
    }
    let partition = broker.server().broker.partitions.get("topic", PartitionIndex(0)).expect("it is there");
    let full = partition.size_bytes();
    // Long enough for many passes without a limit.
    sleep(Duration::from_secs(2)).await;
    assert_eq!(partition.size_bytes(), full, "a byte in a second is not enough for a pass");
    set(&broker, RATE, "100000000").await;
    let deadline = Instant::now() + Duration::from_secs(30);
    while partition.size_bytes() > full / 2 {
        assert!(Instant::now() < deadline, "nothing is compacted after 30 s");
        sleep(Duration::from_millis(20)).await;
    }
    broker.stop().await;
}

/// A value that all brokers have counts for the topics that inherit it before any log is judged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gaps_of_a_topic_that_all_brokers_have_compacted_are_no_lost_records() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let properties = [("log.cleaner.backoff.ms", "50"), ("log.segment.bytes", "1048576")];
    let broker = RunningBroker::start(dir.path(), &properties).await;
    set(&broker, "log.cleanup.policy", "compact").await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let now_ms = broker.server().broker.clock.now_ms();
    // Each segment ends with a record that the next one replaces.
    for segment in 0..4 {
        for (key, size) in [(format!("kept-{segment}"), 600_000), ("replaced".to_owned(), 300_000)] {
            let mut builder = BatchBuilder::new(BatchOptions::default());
            builder.append(now_ms, Some(key.as_bytes()), Some(&vec![b'v'; size]), &[]).expect("it fits");
            assert_eq!(put(&broker, &topic, -1, builder.build()).await.error_code, 0);
        }
    }
    let partition = broker.server().broker.partitions.get("topic", PartitionIndex(0)).expect("it is there");
    let deadline = Instant::now() + Duration::from_secs(30);
    while partition.size_bytes() > 3_500_000 {
        assert!(Instant::now() < deadline, "nothing is compacted after 30 s: {}", partition.size_bytes());
        sleep(Duration::from_millis(20)).await;
    }
    let end = Partition::figures(&partition).log_end;
    drop(partition);
    broker.kill().await;
    // As after a crash between the replacement of the segments and the checkpoint.
    for name in ["cleaner-offset-checkpoint", "recovery-point-offset-checkpoint"] {
        let _ = std::fs::remove_file(dir.path().join(name));
    }
    let broker = RunningBroker::start(dir.path(), &properties).await;
    let partition = broker.server().broker.partitions.get("topic", PartitionIndex(0)).expect("it is there");
    assert_eq!(Partition::figures(&partition).log_end, end);
    broker.stop().await;
}
