//! Share consumers of `thalweg-client`, in the tests that they pass against Apache Kafka.

use crate::running::RunningBroker;
use crate::sharing;

const PROPERTIES: [(&str, &str); 4] = [
    ("share.coordinator.state.topic.num.partitions", "3"),
    ("group.share.min.heartbeat.interval.ms", "200"),
    ("group.share.heartbeat.interval.ms", "200"),
    ("num.partitions", "3"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_group_shares_records() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &PROPERTIES).await;
    sharing::a_share_group_shares_records(&[broker.address().to_owned()]).await;
    broker.stop().await;
}
