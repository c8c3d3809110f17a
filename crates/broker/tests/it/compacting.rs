//! Compaction in a whole broker: how fast it may go, and that this can be changed.

use crate::records::{Topic, put};
use crate::running::Running;
use std::time::Duration;
use thalweg_metadata::PartitionIndex;
use thalweg_record::{BatchBuilder, BatchOptions};
use thalweg_wire::request::IncrementalAlterConfigsRequest;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use tokio::time::{Instant, sleep};

const RATE: &str = "log.cleaner.io.max.bytes.per.second";

async fn set_rate(broker: &Running, rate: &str) {
    let config = AlterableConfig { name: RATE.to_owned(), config_operation: 0, value: Some(rate.to_owned()) };
    let resource =
        AlterConfigsResource { resource_type: 4, resource_name: String::new(), configs: vec![config] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    assert_eq!(broker.ask(&request).await.responses[0].error_code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_keeps_to_its_rate_which_can_change() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = Running::start(dir.path(), &[(RATE, "1"), ("log.cleaner.backoff.ms", "50")]).await;
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
    set_rate(&broker, "100000000").await;
    let deadline = Instant::now() + Duration::from_secs(30);
    while partition.size_bytes() > full / 2 {
        assert!(Instant::now() < deadline, "nothing is compacted after 30 s");
        sleep(Duration::from_millis(20)).await;
    }
    broker.stop().await;
}
