//! A node whose only disk is full when it starts: metadata log, logs of partitions, and no other broker.

use crate::records::{Topic, batch, put};
use crate::running::RunningBroker;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thalweg_broker::Machine;
use thalweg_log::Clock;
use thalweg_log::disk::{Disk, MemoryDisk};
use thalweg_wire::request::delete_topics_request::DeleteTopicState;
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Uuid};
use tokio::time::Instant;

const PROPERTIES: [(&str, &str); 1] = [("log.segment.delete.delay.ms", "100")];
const PATIENCE: Duration = Duration::from_secs(60);

/// Appends records until the outcome is this one.
async fn put_until(broker: &RunningBroker, topic: &Topic, error_code: i16) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = put(broker, topic, -1, batch(&[&[7; 10_000]])).await.error_code;
        if found == error_code {
            return;
        }
        assert!(Instant::now() < deadline, "{found}, and not {error_code}");
        if found != 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_starts_on_a_full_disk_which_a_deleted_topic_frees() {
    let memory = MemoryDisk::new(Clock::system());
    let machine = Machine { disk: Disk::in_memory(Arc::clone(&memory)), ..Machine::real() };
    let dir = Path::new("/data");
    let mut broker = RunningBroker::start_on(&machine, dir, &PROPERTIES).await;
    let large = Topic::create(&broker, "large", 1, &[]).await;
    let small = Topic::create(&broker, "small", 1, &[]).await;
    for _ in 0..100 {
        assert_eq!(put(&broker, &large, -1, batch(&[&[7; 100_000]])).await.error_code, 0);
    }
    put_until(&broker, &small, 0).await;
    memory.set_capacity(dir, Some(memory.used_bytes(dir)));
    let full = ErrorCode::KafkaStorageError.code();
    put_until(&broker, &small, full).await;
    for _ in 0..3 {
        broker.stop().await;
        broker = RunningBroker::start_on(&machine, dir, &PROPERTIES).await;
        put_until(&broker, &small, full).await;
    }
    let name = Some(large.name.clone());
    let topics = vec![DeleteTopicState { name, topic_id: Uuid::ZERO }];
    let request = DeleteTopicsRequest { topics, timeout_ms: 10_000, ..Default::default() };
    let deleted = broker.ask(&request).await.responses.remove(0);
    assert_eq!(deleted.error_code, 0, "{:?}", deleted.error_message);
    put_until(&broker, &small, 0).await;
    broker.stop().await;
}
